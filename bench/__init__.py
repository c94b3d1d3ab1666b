"""Benchmarks against peers and floors: each prints both sides, measured in one run."""
