"""Lexical retrieval methods: each module is one method, started as ``python3 -m methods.NAME``."""
