"""The tasks that a benchmark can have: one module each, found by name.

To add a task, write a module with the functions of ``Task`` and name it in ``_MODULES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from runner.errors import ProtocolError

if TYPE_CHECKING:
    from pathlib import Path

    from runner.datasets.beir import RetrievalDataset
    from runner.protocol.load import Protocol as FrozenProtocol
    from runner.tasks.retrieval_inputs import BlindCorpus, InputReport, TaskOptions
    from runner.tasks.retrieval_score import UnitScorer, UnitScores

_MODULES = {"retrieval": "runner.tasks.retrieval"}


class Task(Protocol):
    """What every task module offers."""

    def check_metrics(self, metrics: Sequence[str], top_k: int) -> None:
        """Raise ``ProtocolError`` for a metric that the task cannot compute."""

    def expected_ids(
        self, protocol: FrozenProtocol, dataset: RetrievalDataset, splits: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the ids that a method must answer, in order."""

    def write_blind_inputs(
        self,
        dataset: RetrievalDataset,
        query_ids: Sequence[str],
        task: TaskOptions,
        folder: Path,
        *,
        corpus: BlindCorpus | None = None,
    ) -> InputReport:
        """Write what a method may see, and nothing else."""

    def unit_scorer(
        self,
        dataset: RetrievalDataset,
        protocol: FrozenProtocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> UnitScorer:
        """Return a scorer to feed while the rows of a unit are read."""

    def score_unit(
        self,
        parts: Sequence[Path],
        dataset: RetrievalDataset,
        protocol: FrozenProtocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> UnitScores:
        """Score the row files of a unit."""


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks."""
    return tuple(_MODULES)


def task_module(name: str) -> Task:
    """Return the module of a task; raise ``ProtocolError`` for a name that is none."""
    if name not in _MODULES:
        raise ProtocolError(
            "protocol.unknown-task",
            f"no task {name!r}",
            fix=f"use one of: {', '.join(_MODULES)}",
        )
    return cast(Task, import_module(_MODULES[name]))
