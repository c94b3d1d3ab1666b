"""Jaccard index of the sets of tokens of two sources."""

import re

TOKEN = re.compile(r"\w+|[^\w\s]")


def score(left: str, right: str) -> float:
    one, other = set(TOKEN.findall(left)), set(TOKEN.findall(right))
    return len(one & other) / len(one | other) if one or other else 1.0
