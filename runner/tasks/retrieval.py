"""The retrieval task: what a method is asked, and what its rankings are worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from runner.canonical import Json
from runner.datasets.beir import Shape, load_beir
from runner.errors import ProtocolError
from runner.metrics.names import is_metric, parse_metric
from runner.protocol.policies import check_depth, check_query_policy
from runner.protocol.splits import ALL, TEST, union_of
from runner.protocol.splits import split_ids as ids_of_splits
from runner.tasks.code_collection import FORMAT as CODE
from runner.tasks.code_collection import CodeRetrievalDataset, Collection, load_collection
from runner.tasks.pair import check_count, kept_members, refuse_calibration
from runner.tasks.retrieval_inputs import BlindCorpus, write_blind_corpus
from runner.tasks.retrieval_inputs import write_blind_inputs as write_inputs

if TYPE_CHECKING:
    from runner.manifest import FreezeDataset, FreezeManifest
    from runner.protocol.load import Protocol, ProtocolDataset
    from runner.rows.faults import FaultLog
    from runner.rows.retrieval import RetrievalRows
    from runner.tasks.api import InputReport, SealedSource, TaskOptions, Unavailable
    from runner.tasks.retrieval_score import UnitScorer
    from runner.tasks.retrieval_sealed import SealedCollection

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

ROW_KIND = "row-retrieval"
RULES_VERSION = 1


def known_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return those of the metrics that rankings have, in order."""
    return tuple(name for name in metrics if is_metric(name))


def check_metrics(metrics: Sequence[str], top_k: int) -> None:
    """Raise ``ProtocolError`` for an unknown metric, or one that looks deeper than ``top_k``."""
    check_depth(metrics, top_k, parse_metric)


def protocol_rules(manifest: FreezeManifest) -> dict[str, Json]:
    """Return how rankings are judged."""
    return {
        "tie": "score_desc_id_asc",
        "unjudged": "not_relevant",
        "gain": "linear",
        "queries_without_positives": manifest.rules["queries_without_positives"],
        "version": RULES_VERSION,
    }


def load(name: str, source: Mapping[str, Any], folder: Path, root: Path) -> Collection:
    """Load a collection; ``source`` has ``format``, for BEIR ``qrels``, and maybe ``expect``."""
    if source["format"] == CODE:
        found = load_collection(name, source, folder, root)
        for what, count in source.get("expect", {}).items():
            check_count(name, what, found.content["counts"][what], count)
        return found
    if source["format"] != "beir":
        raise ProtocolError(
            "protocol.unknown-format",
            f"no adapter reads format {source['format']!r} for dataset {name}",
            fix=f"use beir or {CODE}",
        )
    expect = source.get("expect", {})
    shape = Shape(documents=expect.get("documents"), queries=expect.get("queries"))
    return load_beir(folder, name=name, qrels_split=source["qrels"], root=root, shape=shape)


def content_of(dataset: Collection) -> dict[str, Any]:
    """Return the part of a protocol's dataset entry that the content alone determines."""
    if isinstance(dataset, CodeRetrievalDataset):
        return dict(dataset.content)
    payload = dataset.payload
    return {
        "task": "retrieval",
        "format": "beir",
        "qrels": dataset.qrels_split,
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in dataset.files],
        "payload": {
            "corpus_sha256": payload.corpus,
            "queries_sha256": payload.queries,
            "labels_sha256": payload.labels,
        },
        "counts": {
            "documents": dataset.document_count,
            "queries": len(dataset.queries),
            "judgments": dataset.judgment_count,
            "positives": dataset.positive_count,
        },
    }


def entry_members(
    dataset: Collection, declared: FreezeDataset, manifest: FreezeManifest
) -> dict[str, Any]:
    """Name the queries without positives; the policy on them must be settled and described."""
    without = dataset.queries_without_positives
    policy = str(manifest.rules["queries_without_positives"])
    check_query_policy(policy, without, declared.selection)
    kept = kept_members(declared) if isinstance(dataset, CodeRetrievalDataset) else {}
    return {"queries_without_positives": list(without), **kept}


def split_ids(dataset: Collection, calibration: int | None) -> dict[str, tuple[str, ...]]:
    """Return the judged queries of every split, each in split order."""
    if isinstance(dataset, CodeRetrievalDataset):
        refuse_calibration(calibration)
        every = ids_of_splits(dataset.queries.keys(), None)
        return {**every, TEST: every[ALL]}
    return ids_of_splits(dataset.queries.keys(), calibration)


def entry_problems(entry: ProtocolDataset, protocol: Protocol) -> Iterator[str]:
    """Say in which ways an entry contradicts itself."""
    if entry.format == CODE:
        expected: tuple[str, ...] = ("files.csv", "queries.csv", "corpus.csv", "qrels.csv")
    else:
        expected = ("corpus.jsonl", "queries.jsonl", f"qrels/{entry.document['qrels']}.tsv")
    if tuple(file.name for file in entry.files) != expected:
        yield f"its files are not {', '.join(expected)}"
    count = entry.splits[ALL].queries
    if count != entry.counts["queries"]:
        yield "its split 'all' has another number of queries than its counts"
    if entry.counts["positives"] > entry.counts["judgments"]:
        yield "it has more positives than judgments"
    without = entry.document["queries_without_positives"]
    if without != sorted(set(without)) or len(without) > count:
        yield "its queries without positives are not a sorted list of its queries"
    if "queries_without_positives" not in protocol.rules:
        yield "the protocol has no rule for queries without positives"


def expected_ids(protocol: Protocol, dataset: Collection, splits: Iterable[str]) -> tuple[str, ...]:
    """Return the queries that a method must answer for these splits, in the order of ``all``."""
    return union_of(split_ids(dataset, protocol.calibration), splits)


def share_inputs(dataset: Collection, folder: Path) -> BlindCorpus:
    """Write the documents without labels, once for all units of the dataset."""
    return write_blind_corpus(dataset, folder / "corpus.jsonl")


def write_blind_inputs(
    dataset: Collection,
    ids: Sequence[str],
    task: TaskOptions,
    folder: Path,
    *,
    shared: BlindCorpus | None = None,
) -> InputReport:
    """Write what a method may see; over sources it is asked for whole rankings."""
    if isinstance(dataset, CodeRetrievalDataset):
        options = {**task.options, **dataset.options}
        task = replace(task, top_k=dataset.document_count, options=options)
    return write_inputs(dataset, ids, task, folder, shared=shared)


def import_rows(
    source: BinaryIO, dataset: Collection, ids: Sequence[str], faults: FaultLog
) -> Iterator[tuple[str, bytes]]:
    """Yield rows of a TREC run, of BEIR's or MTEB's results, or of a file of rows."""
    from runner.tasks import retrieval_import

    return retrieval_import.import_rows(source, dataset, ids, faults)


def row_checker() -> RetrievalRows:
    """Return a checker that knows no ids."""
    from runner.rows.retrieval import RetrievalRows

    return RetrievalRows(None)


def unit_scorer(
    dataset: Collection | SealedCollection,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScorer:
    """Return a scorer to feed while rows are read; see ``retrieval_score.UnitScorer``."""
    from runner.tasks.retrieval_score import UnitScorer  # numpy: not for `check` and `plan`

    return UnitScorer(dataset, protocol, splits, artifact=artifact)


def sealed_dataset(source: SealedSource) -> SealedCollection | Unavailable:
    """Return the labels that score files have; see ``retrieval_sealed``."""
    from runner.tasks.retrieval_sealed import sealed_collection

    return sealed_collection(source)
