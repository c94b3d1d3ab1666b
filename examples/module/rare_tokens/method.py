"""The same, yet a token counts the more the fewer sources have it: `prepare` sees them all."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tokens import tokens

weight: dict[str, float] = {}


def prepare(texts: Sequence[str], config: Mapping[str, float], _seed: int) -> None:
    counts = Counter(token for text in texts for token in tokens(text))
    floor = config.get("floor", 0.0)
    for token, count in counts.items():
        weight[token] = max(floor, math.log(1 + len(texts) / count))


def score(left: str, right: str) -> float:
    one, other = tokens(left), tokens(right)
    whole = math.fsum(weight[token] for token in one | other)
    return min(1.0, math.fsum(weight[token] for token in one & other) / whole) if whole else 1.0
