"""A unit's metrics on every resample: the task's own values, or means of its samples.

Drawing costs more than adding, so all metrics of a unit are added up in one pass over the draws.
Equal seeds, positions and sizes draw equal resamples, whatever the method: differences are paired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.metrics.bootstrap import resampled_sums
from runner.tasks.api import SplitScore

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray


class Replicates:
    """Replicates of any unit under one seed; each unit's are drawn once and kept."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # By identity: a score holds arrays, and lives as long as the results are built.
        self._kept: dict[tuple[int, int], dict[str, NDArray[float64]]] = {}

    def of(self, score: SplitScore, metric: str, position: int) -> NDArray[float64] | None:
        """Return the metric on each resample, or None where it has none.

        ``position`` is that of the dataset, so that datasets are resampled apart.
        """
        if metric in score.replicates:
            return score.replicates[metric]
        kept = self._kept.get((id(score), position))
        if kept is None:
            kept = self._kept[id(score), position] = self._means(score, position)
        return kept.get(metric)

    def _means(self, score: SplitScore, position: int) -> dict[str, NDArray[float64]]:
        import numpy as np

        by_size: dict[int, list[str]] = {}
        for name, sample in score.samples.items():
            by_size.setdefault(len(sample), []).append(name)
        means: dict[str, NDArray[float64]] = {}
        for size, names in by_size.items():
            if not size:
                continue
            table = np.stack([score.samples[name] for name in names], axis=1)
            sums = resampled_sums(table, seed=self._seed, position=position)
            means |= {name: sums[:, at] / size for at, name in enumerate(names)}
        return means
