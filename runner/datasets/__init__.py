"""Adapters from published layouts to checked datasets: one module a format."""
