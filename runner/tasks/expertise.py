"""The expertise task: how well does each reviewer know the subject of each submission?

A dataset is one version of the reviewers' profiles; scores average over versions. Methods and
bundles know reviewers and papers by opaque ids only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from runner.canonical import Json
from runner.datasets.openreview import read_openreview
from runner.datasets.reviewer_compact import read_compact
from runner.datasets.reviewers import (
    Absent,
    ExpertiseDataset,
    ExpertiseShape,
    Origin,
    build,
    check_shape,
)
from runner.errors import ProtocolError
from runner.metrics.expertise_names import is_metric, parse_metric
from runner.protocol.policies import check_depth
from runner.protocol.splits import ALL, union_of
from runner.protocol.splits import split_ids as ids_of_splits
from runner.tasks.expertise_inputs import share_inputs, write_blind_inputs

if TYPE_CHECKING:
    from runner.manifest import FreezeDataset, FreezeManifest
    from runner.protocol.load import Protocol, ProtocolDataset
    from runner.rows.expertise import ExpertiseRows
    from runner.rows.faults import FaultLog
    from runner.tasks.api import SealedSource, Unavailable
    from runner.tasks.expertise_score import UnitScorer
    from runner.tasks.expertise_sealed import SealedReviewers

__all__ = [
    "ROW_KIND",
    "check_metrics",
    "content_of",
    "entry_members",
    "entry_problems",
    "expected_ids",
    "import_rows",
    "known_metrics",
    "load",
    "protocol_rules",
    "row_checker",
    "sealed_dataset",
    "share_inputs",
    "split_ids",
    "unit_scorer",
    "write_blind_inputs",
]

ROW_KIND = "row-expertise"
RULES_VERSION = 1
#: Where a dataset's parts lie below the data root, and which part is meant: as declared.
_PLACES = ("texts", "ratings", "archive", "version")
_READERS = {"reviewer-compact": read_compact, "openreview": read_openreview}


def known_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return those of the metrics that expertise has, in order."""
    return tuple(name for name in metrics if is_metric(name))


def check_metrics(metrics: Sequence[str], top_k: int) -> None:
    """Raise ``ProtocolError`` for an unknown metric, or one that looks deeper than ``top_k``."""
    check_depth(metrics, top_k, parse_metric)


def protocol_rules(manifest: FreezeManifest) -> dict[str, Json]:
    """Return how scores are judged."""
    return {
        "tie": "score_desc_id_asc",
        "truth_tie": "rating_desc_id_desc",
        "ids": "opaque",
        "normalisation": "global",
        "tied_scores": "half_the_gap",
        "missing_score": manifest.rules["missing_score"],
        "version": RULES_VERSION,
    }


def load(name: str, source: Mapping[str, Any], folder: Path, root: Path) -> ExpertiseDataset:
    """Load one version. ``source`` has ``format``, ``version``, maybe ``texts``, ``ratings``,
    ``archive``, ``absent`` and ``expect``."""
    reader = _READERS.get(source["format"])
    if reader is None:
        raise ProtocolError(
            "protocol.unknown-format",
            f"no adapter reads format {source['format']!r} for dataset {name}",
            fix=f"use one of: {', '.join(_READERS)}",
        )
    where = {place: str(source.get(place, "")) for place in _PLACES}
    published = reader(folder, root, where, where["version"])
    absent = Absent(**source.get("absent", {}))
    given = {place: path for place, path in where.items() if path}
    origin = Origin(name=name, format=source["format"], places=given, folder=folder, root=root)
    dataset = build(origin, published, absent)
    check_shape(dataset, ExpertiseShape(**source.get("expect", {})))
    return dataset


def content_of(dataset: ExpertiseDataset) -> dict[str, Any]:
    """Return the part of a protocol's dataset entry that the content alone determines."""
    payload = dataset.payload
    return {
        "task": "expertise",
        "format": dataset.format,
        **dataset.places,
        "absent": {"reviewers": dataset.absent.reviewers, "papers": dataset.absent.papers},
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in dataset.files],
        "payload": {
            "papers_sha256": payload.papers,
            "profiles_sha256": payload.profiles,
            "labels_sha256": payload.labels,
        },
        "counts": {
            "reviewers": len(dataset.profiles),
            "submissions": len(dataset.submissions),
            "profile_papers": len(dataset.papers) - len(dataset.submissions),
            "ratings": dataset.rating_count,
            "pairs": dataset.pair_count,
        },
    }


def entry_members(
    dataset: ExpertiseDataset,  # noqa: ARG001 - all that is said of a version is its content
    declared: FreezeDataset,  # noqa: ARG001
    manifest: FreezeManifest,  # noqa: ARG001
) -> dict[str, Any]:
    """Return nothing further."""
    return {}


def split_ids(dataset: ExpertiseDataset, calibration: int | None) -> dict[str, tuple[str, ...]]:
    """Return the reviewers' opaque ids of every split, each in split order."""
    return ids_of_splits(dataset.profiles.keys(), calibration)


def entry_problems(entry: ProtocolDataset, protocol: Protocol) -> Iterator[str]:
    """Say in which ways an entry contradicts itself."""
    if entry.splits[ALL].queries != entry.counts["reviewers"]:
        yield "its split 'all' has another number of reviewers than its counts"
    if entry.counts["ratings"] < entry.counts["reviewers"]:
        yield "it has fewer ratings than reviewers"
    if len({file.name for file in entry.files}) != len(entry.files):
        yield "a file stands twice"
    if "missing_score" not in protocol.rules:
        yield "the protocol has no rule for missing scores"


def expected_ids(
    protocol: Protocol, dataset: ExpertiseDataset, splits: Iterable[str]
) -> tuple[str, ...]:
    """Return the reviewers that a method must score for these splits, in the order of ``all``."""
    return union_of(split_ids(dataset, protocol.calibration), splits)


def import_rows(
    source: BinaryIO, dataset: ExpertiseDataset, ids: Sequence[str], faults: FaultLog
) -> Iterator[tuple[str, bytes]]:
    """Yield (reviewer id, row line) for predictions that were made elsewhere."""
    from runner.tasks.expertise_import import import_rows as rows_of

    return rows_of(source, dataset, ids, faults)


def row_checker() -> ExpertiseRows:
    """Return a checker that knows no ids."""
    from runner.rows.expertise import ExpertiseRows

    return ExpertiseRows(None)


def unit_scorer(
    dataset: ExpertiseDataset | SealedReviewers,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScorer:
    """Return a scorer to feed while rows are read; see ``expertise_score.UnitScorer``."""
    from runner.tasks.expertise_score import UnitScorer  # numpy: not for `check` and `plan`

    return UnitScorer(dataset, protocol, splits, artifact=artifact)


def sealed_dataset(source: SealedSource) -> SealedReviewers | Unavailable:
    """Return the labels that score files have; see ``expertise_sealed``."""
    from runner.tasks.expertise_sealed import sealed_reviewers

    return sealed_reviewers(source)
