import re

TOKEN = re.compile(r"\w+|[^\w\s]")


def tokens(text: str) -> frozenset[str]:
    return frozenset(TOKEN.findall(text))
