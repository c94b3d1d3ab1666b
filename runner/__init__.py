"""Sealbench: run benchmark methods in pinned containers and seal what happened."""

__version__ = "0.1.0"
