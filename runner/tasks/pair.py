"""The pair task: how similar are two sources, and was one made from the other?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from runner.canonical import Json
from runner.errors import ProtocolError
from runner.metrics.pair_names import METRICS, unknown
from runner.protocol.policies import check_query_policy
from runner.tasks import pair_policies, pair_splits
from runner.tasks.pair_dataset import FORMAT, PairDataset, load_pairs
from runner.tasks.pair_inputs import share_inputs, write_blind_inputs

if TYPE_CHECKING:
    from runner.manifest import FreezeDataset, FreezeManifest
    from runner.protocol.load import Protocol, ProtocolDataset
    from runner.rows.faults import FaultLog
    from runner.rows.pair import PairRows
    from runner.tasks.api import SealedSource, Unavailable
    from runner.tasks.pair_score import UnitScorer
    from runner.tasks.pair_sealed import SealedPairs

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

ROW_KIND = "row-pair"
RULES_VERSION = 1
#: Members of a freeze manifest's entry that a protocol keeps as they are.
_KEPT = ("similarity_options", "split", "validation_split")


def known_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return those of the metrics that pairs have, in order."""
    return tuple(name for name in metrics if name in METRICS)


def check_metrics(metrics: Sequence[str], top_k: int) -> None:  # noqa: ARG001 - pairs have no depth
    """Raise ``ProtocolError`` for an unknown metric."""
    for name in metrics:
        if name not in METRICS:
            raise unknown(name)


def protocol_rules(manifest: FreezeManifest) -> dict[str, Json]:
    """Return how pairs, and rankings of sources, are judged."""
    rules: Mapping[str, Any] = manifest.rules
    split_policy = pair_policies.split_policy(rules["split_policy"])
    return {
        "tie": "score_desc_id_asc",
        "unjudged": "not_relevant",
        "gain": "linear",
        "queries_without_positives": rules["queries_without_positives"],
        "ids": "opaque",
        "coverage": "full",
        "split_policy": split_policy,
        "independence": pair_policies.independence(split_policy),
        "threshold_policy": dict(rules["threshold_policy"]),
        "version": RULES_VERSION,
    }


def load(name: str, source: Mapping[str, Any], folder: Path, root: Path) -> PairDataset:
    """Load pairs; ``source`` has ``format`` and the layout's own keys."""
    if source["format"] != FORMAT:
        raise ProtocolError(
            "protocol.unknown-format",
            f"no adapter reads format {source['format']!r} for dataset {name}",
            fix=f"use {FORMAT}",
        )
    dataset = load_pairs(name, source, folder, root)
    for what, count in source.get("expect", {}).items():
        check_count(name, what, dataset.content["counts"][what], count)
    return dataset


def check_count(name: str, what: str, found: int, declared: int) -> None:
    """Raise ``ProtocolError`` for a count that is not the declared one."""
    if found != declared:
        raise ProtocolError(
            "protocol.wrong-shape",
            f"dataset {name} has {found} {what}, declared are {declared}",
            fix="get the published files again, or correct `expect`",
        )


def content_of(dataset: PairDataset) -> dict[str, Any]:
    """Return the part of a protocol's dataset entry that the content alone determines."""
    return dict(dataset.content)


def entry_members(
    dataset: PairDataset, declared: FreezeDataset, manifest: FreezeManifest
) -> dict[str, Any]:
    """Check the policies; return what the entry says of how the sources are used."""
    pair_policies.check_policies(dataset, protocol_rules(manifest))
    check_query_policy(str(manifest.rules["queries_without_positives"]), (), declared.selection)
    return kept_members(declared)


def kept_members(declared: FreezeDataset) -> dict[str, Any]:
    """Return what a code dataset's entry keeps of its declaration."""
    return {key: declared.options[key] for key in _KEPT if key in declared.options}


def split_ids(dataset: PairDataset, calibration: int | None) -> dict[str, tuple[str, ...]]:
    """Return the opaque ids of every split: all, test, and validation where there is one."""
    refuse_calibration(calibration)
    return pair_splits.splits_of(dataset)


def refuse_calibration(calibration: int | None) -> None:
    """Code datasets are split by their maintainers, never by a hash of ids."""
    if calibration is not None:
        raise ProtocolError(
            "protocol.bad-calibration",
            "a plagiarism benchmark has no calibration split",
            fix="remove `splits`; give validation pairs by validation_path",
        )


def entry_problems(entry: ProtocolDataset, protocol: Protocol) -> Iterator[str]:
    """Say in which ways an entry contradicts itself."""
    counts, sub = entry.counts, entry.document["validation"]
    folders = ("",) if sub is None else ("", f"{sub}/")
    expected = [f"{folder}{name}" for folder in folders for name in ("files.csv", "pairs.csv")]
    if [file.name for file in entry.files] != expected:
        yield f"its files are not {', '.join(expected)}"
    if counts["positives"] > counts["pairs"]:
        yield "it has more positives than pairs"
    if (sub is None) != (counts["validation_pairs"] == 0) or (sub is None) == (
        pair_splits.VALIDATION in entry.splits
    ):
        yield "its validation folder, pairs and split do not agree"
    if entry.splits["all"].queries != counts["pairs"] + counts["validation_pairs"]:
        yield "its split 'all' has another number of pairs than its counts"
    if "threshold_policy" not in protocol.rules:
        yield "the protocol has no rule for thresholds"


def expected_ids(
    protocol: Protocol, dataset: PairDataset, splits: Iterable[str]
) -> tuple[str, ...]:
    """Return the pairs that a method must score; policies are enforced before every run."""
    pair_policies.check_policies(dataset, protocol.rules)
    return pair_splits.asked_ids(dataset, splits)


def import_rows(
    source: BinaryIO, dataset: PairDataset, ids: Sequence[str], faults: FaultLog
) -> Iterator[tuple[str, bytes]]:
    """Yield rows of a file of rows, or of a table with ``pair_id`` and ``score``."""
    from runner.tasks import pair_import

    return pair_import.import_rows(source, dataset, ids, faults)


def row_checker() -> PairRows:
    """Return a checker that knows no ids."""
    from runner.rows.pair import PairRows

    return PairRows(None)


def unit_scorer(
    dataset: PairDataset | SealedPairs,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScorer:
    """Return a scorer to feed while rows are read; see ``pair_score.UnitScorer``."""
    from runner.tasks.pair_score import UnitScorer  # numpy: not for `check` and `plan`

    return UnitScorer(dataset, protocol, splits, artifact=artifact)


def sealed_dataset(source: SealedSource) -> SealedPairs | Unavailable:
    """Return the labels that score files have; see ``pair_sealed``."""
    from runner.tasks.pair_sealed import sealed_pairs

    return sealed_pairs(source)
