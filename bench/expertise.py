"""The loss of one method with its interval: 10 versions, 1,000 resamples of 58 reviewers.

The peer is the plain double loop over resamples and pairs of papers, in Python, on the same draws;
all replicates must be equal to the last bit. Made-up ratings of the benchmark's own shape.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from bench.measure import Stopwatch, print_ratio, scale_of, side

VERSIONS, ROUNDS = 10, 5
SEED = ROUNDS - 1  # of the last round: its replicates are compared
GOAL = 1_000
#: How many reviewers rated how many papers, as in the benchmark.
RATED = {3: 1, 4: 0, 5: 9, 6: 4, 7: 5, 8: 8, 9: 4, 10: 27}

Ratings = list[dict[str, float]]


def ratings() -> Ratings:
    """Return the ratings of every reviewer, 1 to 5 in quarter points; always the same ones."""
    source = random.Random(0)  # noqa: S311 - made-up data
    sizes = [size for size, count in RATED.items() for _ in range(count)]
    return [{f"p{n:02d}": 1 + source.randrange(17) / 4 for n in range(size)} for size in sizes]


def scores(version: int) -> Ratings:
    """Return the scores of one version: ratings with much noise, some of them tied."""
    source = random.Random(version + 1)  # noqa: S311 - made-up data
    return [
        {paper: round(value + source.gauss(0, 2)) / 8 for paper, value in one.items()}
        for one in ratings()
    ]


def ours(watch: Stopwatch, resamples: int) -> Any:
    """Pairs, losses, draws and ratios, from scores that stand beside the ratings."""
    import numpy as np
    import numpy.random  # numpy loads it late, and loading is no part of the work

    from runner.metrics.kendall import RatedPairs, RatedPapers, replicates

    given = ratings()
    columns = [
        np.array([one[paper] for one in scores(version) for paper in sorted(one)])
        for version in range(VERSIONS)
    ]
    papers = RatedPapers.of(given)
    for seed in range(ROUNDS):  # other draws each time, so that none are at hand already
        with watch:
            pairs = RatedPairs.of(papers)
            ratios = [{"loss": pairs.loss(pairs.agreement(column))} for column in columns]
            found = [replicates(one, seed=seed, resamples=resamples)["loss"] for one in ratios]
    return [one.tolist() for one in found]


def double_loop(watch: Stopwatch, resamples: int) -> Any:
    """The same by the definition, pair after pair."""
    import numpy as np

    from runner.metrics.bootstrap import resampled_sums

    given, versions = ratings(), [scores(version) for version in range(VERSIONS)]
    # How often each reviewer is drawn: the sums of unit columns.
    counts = resampled_sums(np.eye(len(given)), seed=SEED, resamples=resamples)
    drawn = [
        [who for who, times in enumerate(row) for _ in range(int(times))] for row in counts.tolist()
    ]
    with watch:
        return [[_loss(given, version, chosen) for chosen in drawn] for version in versions]


def _loss(given: Ratings, found: Ratings, chosen: list[int]) -> float:
    loss = norm = 0.0
    for who in chosen:
        rated, scored = given[who], found[who]
        papers = list(rated)
        for position, one in enumerate(papers):
            for other in papers[position + 1 :]:
                gap = abs(rated[one] - rated[other])
                norm += gap
                if scored[one] == scored[other]:
                    loss += gap / 2
                elif (scored[one] > scored[other]) != (rated[one] > rated[other]):
                    loss += gap
    return loss / norm


def main(arguments: list[str] | None = None) -> int:
    """Measure both sides and print the ratio; exit code 1 if the goal is missed."""
    resamples = max(10, int(1000 * scale_of(arguments, __doc__ or "")))
    mine, peer = side(ours, resamples), side(double_loop, resamples)
    work = f"expertise loss, {VERSIONS} versions, {resamples} resamples"
    met = print_ratio(work, mine.cpu_seconds / ROUNDS, "double loop", peer.cpu_seconds, GOAL)
    same = mine.value == peer.value
    print(f"  {VERSIONS * resamples} replicates {'equal' if same else 'DIFFER'} to the last bit")
    return 0 if met and same else 1


if __name__ == "__main__":
    sys.exit(main())
