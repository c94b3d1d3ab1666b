"""AP and AUROC of 1,000,000 pairs, and all six metrics, against scikit-learn in one run."""

from __future__ import annotations

import sys
from typing import Any

from bench.measure import Stopwatch, print_ratio, side

PAIRS = 1_000_000
GOAL_RANKED = 10.0
GOAL_ALL = 20.0
ROUNDS = 5
THRESHOLD = 0.5


def _data() -> tuple[Any, Any]:
    import numpy as np

    source = np.random.default_rng(5)
    labels = source.random(PAIRS) < 0.3
    return source.beta(2.0, 5.0, PAIRS) + 0.1 * labels, labels


def ours(watch: Stopwatch, *, every: bool) -> dict[str, float | None]:
    """Compute with this project's functions, ``ROUNDS`` times."""
    from runner.metrics import classification as own

    scores, labels = _data()
    own.all_metrics(own.classes(scores, labels), THRESHOLD)
    found: dict[str, float | None] = {}
    for _ in range(ROUNDS):
        with watch:
            sorted_ = own.classes(scores, labels)
            if every:
                found = own.all_metrics(sorted_, THRESHOLD)
            else:
                precision, area = own.ranked(sorted_)
                found = {"average_precision": precision, "auroc": area}
    return found


def peer(watch: Stopwatch, *, every: bool) -> dict[str, float]:
    """Compute with scikit-learn, ``ROUNDS`` times."""
    from sklearn import metrics as their

    scores, labels = _data()
    their.roc_auc_score(labels[:100], scores[:100])
    found = {}
    for _ in range(ROUNDS):
        with watch:
            found = {
                "average_precision": their.average_precision_score(labels, scores),
                "auroc": their.roc_auc_score(labels, scores),
            }
            if every:
                called = scores >= THRESHOLD
                found |= {
                    "f1": their.f1_score(labels, called),
                    "precision": their.precision_score(labels, called),
                    "recall": their.recall_score(labels, called),
                    "accuracy": their.accuracy_score(labels, called),
                }
    return found


def our_ranked(watch: Stopwatch) -> dict[str, float | None]:
    """AP and AUROC, ours."""
    return ours(watch, every=False)


def our_six(watch: Stopwatch) -> dict[str, float | None]:
    """All six, ours."""
    return ours(watch, every=True)


def peer_ranked(watch: Stopwatch) -> dict[str, float]:
    """AP and AUROC, scikit-learn's."""
    return peer(watch, every=False)


def peer_six(watch: Stopwatch) -> dict[str, float]:
    """All six, scikit-learn's."""
    return peer(watch, every=True)


def main() -> int:
    """Print both ratios; 1 when the values differ or a goal is missed."""
    met = True
    for work, us, them, goal in (
        ("AP and AUROC of 1,000,000 pairs", our_ranked, peer_ranked, GOAL_RANKED),
        ("all six metrics of 1,000,000 pairs", our_six, peer_six, GOAL_ALL),
    ):
        own, other = side(us), side(them)
        apart = max(abs(own.value[name] - value) for name, value in other.value.items())
        if apart > 1e-12:
            sys.stderr.write(f"{work}: values are {apart} apart\n")
            met = False
        seconds = [found.cpu_seconds / ROUNDS for found in (own, other)]
        met &= print_ratio(work, seconds[0], "scikit-learn", seconds[1], goal)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
