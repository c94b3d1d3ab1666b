"""The seam between tasks and everything else: what a dataset is, and what a task can do.

A task is a module with the functions of ``Task``. The run, the verifier and the freezer know only
these; documents, pairs or reviewers are a task's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from runner.canonical import Json
from runner.datasets.lines import FileDigest
from runner.model import RowsReport

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from runner.manifest import FreezeDataset, FreezeManifest
    from runner.protocol.load import Protocol as FrozenProtocol
    from runner.protocol.load import ProtocolDataset
    from runner.rows.faults import FaultLog
    from runner.rows.read import RowChecker


class Dataset(Protocol):
    """A loaded dataset: ids, labels and digests; texts may stay on disk."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    @property
    def files(self) -> tuple[FileDigest, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """A score file of a bundle: its path there, its size, and how to open its verified bytes."""

    path: str
    size: int
    open: Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedUnit:
    """The score files of a unit that is ok; ``per_query`` from tasks that write it."""

    scores: SealedFile
    per_query: SealedFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSource:
    """What a bundle says of the labels of one dataset. ``splits`` are the run's."""

    entry: ProtocolDataset
    protocol: FrozenProtocol
    splits: Sequence[str]
    units: Sequence[SealedUnit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Why the score files of a bundle do not determine the labels of a dataset."""

    reason: str


class SealedDataset(Protocol):
    """Labels that were read from score files, in the form that ``Task.unit_scorer`` takes.

    ``proven``: they have the digest that the protocol froze. Else they are the signer's word.
    """

    @property
    def name(self) -> str: ...

    @property
    def proven(self) -> bool: ...

    @property
    def believed(self) -> int:
        """How many figures were only held within bounds so far: no score file determines them."""

    def of_unit(self, scores: str) -> Any:
        """Return the dataset for the unit whose score file has this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What ``task.json`` tells a method beside the data. ``threads``: CPUs granted, rounded up."""

    seed: int
    top_k: int
    threads: int = 1
    config: Mapping[str, Json] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReport:
    """A finished input folder: mode 0555, its files 0444; digests of what was written."""

    folder: Path
    files: tuple[FileDigest, ...]


class Ratio(NamedTuple):
    """A metric as sum of numerators / sum of denominators, one of each for every block (a query, a
    group of pairs); 0 / 0 is 0. Blocks are what two methods are compared on."""

    numerators: NDArray[float64]
    denominators: NDArray[float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScore:
    """One unit on one split; the members are those of ``results.ScoredUnit``.

    ``scores`` has every metric of the task: over ``queries`` items, or None with a reason in
    ``reasons``. An interval comes from ``replicates`` (per metric, its value on each of
    ``bootstrap.RESAMPLES`` resamples, equal draws for every method) or, for a plain mean, from
    ``samples`` (the values that the mean is over); ``no_interval`` says why a metric with a score
    has neither. ``linear``: its limits are interpolated between replicates, as numpy does by
    default; else they are those of the nearest rank. ``ratios`` say
    what two methods are compared on, where ``samples`` do not; with ``shared_blocks`` their blocks
    are the same ones, in the same order, in every dataset of the task.
    """

    split: str
    queries: int
    scores: Mapping[str, float | None]
    reasons: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, NDArray[float64]] = field(default_factory=dict)
    replicates: Mapping[str, NDArray[float64]] = field(default_factory=dict)
    no_interval: Mapping[str, str] = field(default_factory=dict)
    linear: bool = False
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    shared_blocks: bool = False
    summary: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScores:
    """All of one unit; ``artifact`` is None where no score artifact was asked for.

    ``per_query`` is the digest of ``per_query_path(artifact)``, from tasks that write it;
    ``rows_sha256`` (hex, see ``determinism``) is known only where repeats are compared.
    """

    splits: tuple[SplitScore, ...]
    artifact: FileDigest | None
    per_query: FileDigest | None = None
    rows_sha256: str | None = None


def per_query_path(artifact: Path) -> Path:
    """Where a task writes what each query came to: beside the score artifact."""
    return artifact.with_name(f"{artifact.stem}.per-query.csv")


class Scorer(AbstractContextManager["Scorer"], Protocol):
    """Scores the rows of one unit while they are read; holds the artifact's file open."""

    def checker(self) -> RowChecker[Any]:
        """Return the checker of rows that this scorer can take."""

    def add(self, rows: Sequence[Any]) -> None:
        """Take in checked rows, in any order, each key once."""

    def result(self, report: RowsReport) -> UnitScores:
        """Return the scores and write the artifact; faults or missing rows are unmeasured."""


class Task(Protocol):
    """What every task module offers. ``D`` below stands for the task's own dataset class."""

    #: The schema of one row, such as ``row-retrieval``.
    ROW_KIND: str

    def known_metrics(self, metrics: Iterable[str]) -> tuple[str, ...]:
        """Return those of the metrics that are this task's, in order; never raises."""

    def check_metrics(self, metrics: Sequence[str], top_k: int) -> None:
        """Raise ``ProtocolError`` for a metric that the task cannot compute."""

    # Freezing and binding -------------------------------------------------------------------

    def protocol_rules(self, manifest: FreezeManifest) -> dict[str, Json]:
        """Return the protocol's ``rules`` for a benchmark of this category."""

    def load(self, name: str, source: Mapping[str, Any], folder: Path, root: Path) -> Any:
        """Load a dataset strictly. ``source`` has ``format`` and the task's own keys, from a
        freeze manifest's dataset or a protocol's entry. Raises ``DataError``."""

    def content_of(self, dataset: Any) -> dict[str, Any]:
        """Return the members of a protocol's entry that the content alone determines; they make
        the fingerprint. Among them: task, format, files, payload, counts."""

    def entry_members(
        self, dataset: Any, declared: FreezeDataset, manifest: FreezeManifest
    ) -> dict[str, Any]:
        """Return further members of the entry, after checking the policies they rest on."""

    def split_ids(self, dataset: Any, calibration: int | None) -> dict[str, tuple[str, ...]]:
        """Return the ids of every split, each in split order; ``all`` is always there."""

    def entry_problems(self, entry: ProtocolDataset, protocol: FrozenProtocol) -> Iterable[str]:
        """Say in which ways an entry contradicts itself: what no schema can see. Pure."""

    # Running --------------------------------------------------------------------------------

    def expected_ids(
        self, protocol: FrozenProtocol, dataset: Any, splits: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the ids that a method must answer, in order."""

    def share_inputs(self, dataset: Any, folder: Path) -> Any:
        """Write what all units of a dataset have in common, once, into a new folder."""

    def write_blind_inputs(
        self,
        dataset: Any,
        ids: Sequence[str],
        task: TaskOptions,
        folder: Path,
        *,
        shared: Any = None,
    ) -> InputReport:
        """Write what a method may see, and nothing else, into a new folder."""

    # Importing ------------------------------------------------------------------------------

    def import_rows(
        self, source: BinaryIO, dataset: Any, ids: Sequence[str], faults: FaultLog
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (key, row line) for the results in a file that was made elsewhere.

        ``source`` is seekable and anybody's; its content tells the format. ``ids`` are the planned
        keys: other rows may come too and are left out. A bad place is added to ``faults``; raise
        ``RowRefused`` for a file that is none of the task's formats.
        """

    # Scoring --------------------------------------------------------------------------------

    def row_checker(self) -> RowChecker[Any]:
        """Return a checker of rows for those who have no data: form and uniqueness only."""

    def unit_scorer(
        self,
        dataset: Any,
        protocol: FrozenProtocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> Scorer:
        """Return a scorer to feed while the rows of a unit are read."""

    def sealed_dataset(self, source: SealedSource) -> SealedDataset | Unavailable:
        """Return the labels as the score files of a bundle have them, for who has no data.

        The files are anybody's. Raises ``BundleError``, with file and line, where they contradict
        each other or the protocol.
        """
