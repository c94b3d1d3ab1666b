"""Similarity of source texts: one module a kind of method, one driver for both tasks."""
