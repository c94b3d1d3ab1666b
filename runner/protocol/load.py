"""Read a frozen protocol, portable or local, and trust nothing that it says about itself.

A protocol file *is* its RFC 8785 bytes: one comparison rules out duplicate keys, a byte-order
mark, white space and other spellings of the same document. Ids and fingerprints are recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from runner.canonical import canonical_bytes, sha256_label
from runner.datasets.lines import FileDigest
from runner.errors import BundleError, ProtocolError, Where
from runner.files import read_regular
from runner.model import Limits
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.splits import ALL, CALIBRATION, HELDOUT, TEST
from runner.schemas import validate
from runner.tasks import task_module, tasks_of

MAX_PROTOCOL_BYTES = 16 << 20
PORTABLE, LOCAL = "sealbench/protocol/v1", "sealbench/local-protocol/v1"
_KINDS = {PORTABLE: "protocol", LOCAL: "local-protocol"}
_AGAIN = "get the published file again, or freeze the benchmark anew with `sealbench freeze`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFact:
    """How many queries a split has, and the SHA-256 (hex) of their newline-joined ids in order."""

    queries: int
    ids_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDataset:
    """One dataset of a protocol; ``files`` as published, ``document`` the whole entry."""

    name: str
    task: str
    format: str
    fingerprint: str
    files: tuple[FileDigest, ...]
    payload: Mapping[str, str]
    counts: Mapping[str, int]
    splits: Mapping[str, SplitFact]
    source: Mapping[str, str]
    selection: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A checked protocol. ``raw`` is the portable form's bytes, ``document`` the same parsed.

    ``calibration`` is None where only the split ``all`` exists; ``roots`` (dataset name to
    folder) is empty for a portable file.
    """

    protocol_id: str
    raw: bytes
    document: Mapping[str, Any]
    benchmark_id: str
    version: str
    title: str
    category: str
    seed: int
    metrics: tuple[str, ...]
    primary_metric: str
    top_k: int
    rules: Mapping[str, Any]
    calibration: int | None
    budget: Limits
    datasets: tuple[ProtocolDataset, ...]
    roots: Mapping[str, Path]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that every dataset of the protocol has."""
        if self.calibration is not None:
            return (ALL, CALIBRATION, HELDOUT)
        have = [dataset.splits for dataset in self.datasets]
        return tuple(name for name in have[0] if all(name in splits for splits in have))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of its datasets, each once, in order."""
        return tuple(dict.fromkeys(dataset.task for dataset in self.datasets))

    def metrics_of(self, task: str) -> tuple[str, ...]:
        """Return the metrics that are a task's, in the protocol's order."""
        return task_module(task).known_metrics(self.metrics)

    def primary_metric_of(self, task: str) -> str:
        """Return the metric that a task's summary shows: the primary one if it is the task's."""
        metrics = self.metrics_of(task)
        return self.primary_metric if self.primary_metric in metrics else metrics[0]

    @property
    def query_policy(self) -> str:
        """What happens to queries without positives: ``policies.QUERY_POLICIES``."""
        return str(self.rules["queries_without_positives"])

    def dataset(self, name: str) -> ProtocolDataset:
        """Return a dataset by name; ``KeyError`` for a name that the protocol does not have."""
        for dataset in self.datasets:
            if dataset.name == name:
                return dataset
        raise KeyError(name)


def load_protocol(path: Path) -> Protocol:
    """Read a protocol file of either form; raise ``ProtocolError`` for anything wrong in it."""
    try:
        raw = read_regular(path, MAX_PROTOCOL_BYTES + 1)
    except OSError as error:
        _refuse(path, "protocol.missing", f"cannot read it: {error.strerror}", fix=_AGAIN)
    return parse_protocol(raw, path)


def parse_protocol(raw: bytes, path: Path) -> Protocol:
    """Check the bytes of a protocol file; ``path`` is only for messages."""
    if len(raw) > MAX_PROTOCOL_BYTES:
        limit = f"more than {MAX_PROTOCOL_BYTES >> 20} MiB"
        _refuse(path, "protocol.too-large", f"a protocol of {limit}", fix=_AGAIN)
    try:
        outer = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(path, "protocol.not-json", f"not JSON: {error}", fix=_AGAIN)
    schema = outer.get("schema") if isinstance(outer, dict) else None
    kind = _KINDS.get(schema) if isinstance(schema, str) else None
    if kind is None:
        known = " or ".join(_KINDS)
        message = f'not a protocol: no "schema" of {known}'
        _refuse(path, "protocol.not-a-protocol", message, fix="name a *.protocol.json file")
    validate(kind, outer, where_file=str(path), error_class=ProtocolError)
    _check_canonical(raw, outer, path)
    if kind == "protocol":
        return _view(outer, raw, {}, path)
    return _view_local(outer, path)


def _view_local(outer: dict[str, Any], path: Path) -> Protocol:
    document = outer["protocol"]
    roots = {name: Path(folder) for name, folder in outer["roots"].items()}
    protocol = _view(document, canonical_bytes(document), roots, path)
    if outer["protocol_id"] != protocol.protocol_id:
        message = f"says protocol_id {outer['protocol_id']} but holds {protocol.protocol_id}"
        _refuse(path, "protocol.wrong-id", message, fix=_AGAIN)
    for name in roots:
        if all(name != dataset.name for dataset in protocol.datasets):
            message = f"gives a root for {name!r}, which is no dataset of the protocol"
            _refuse(path, "protocol.unknown-root", message, fix=_AGAIN)
    return protocol


def _view(document: dict[str, Any], raw: bytes, roots: dict[str, Path], path: Path) -> Protocol:
    benchmark = document["benchmark"]
    protocol = Protocol(
        protocol_id=sha256_label(raw),
        raw=raw,
        document=document,
        benchmark_id=benchmark["id"],
        version=benchmark["version"],
        title=benchmark["title"],
        category=document["category"],
        seed=document["seed"],
        metrics=tuple(document["metrics"]),
        primary_metric=document["primary_metric"],
        top_k=document["top_k"],
        rules=document["rules"],
        calibration=document["splits"]["calibration"],
        budget=Limits(**document["budget"]),
        datasets=tuple(map(_dataset, document["datasets"])),
        roots=roots,
    )
    for problem in contradictions(protocol):
        _refuse(path, "protocol.inconsistent", problem, fix=_AGAIN)
    return protocol


def _dataset(entry: dict[str, Any]) -> ProtocolDataset:
    plain = ("name", "task", "format", "fingerprint", "payload", "counts", "source", "selection")
    return ProtocolDataset(
        **{key: entry[key] for key in plain},
        files=tuple(FileDigest(**file) for file in entry["files"]),
        splits={name: SplitFact(**fact) for name, fact in entry["splits"].items()},
        document=entry,
    )


def contradictions(protocol: Protocol) -> Iterator[str]:
    """Say in which ways a protocol contradicts itself: what no schema can see."""
    if len(set(protocol.metrics)) != len(protocol.metrics):
        yield "a metric stands twice"
    if protocol.primary_metric not in protocol.metrics:
        yield f"primary_metric {protocol.primary_metric} is not among the metrics"
    names = [dataset.name for dataset in protocol.datasets]
    if len(set(names)) != len(names):
        yield "a dataset's name stands twice"
    for metric in protocol.document.get("tolerances", {}).get("metrics", {}):
        if metric not in protocol.metrics:
            yield f"it has a tolerance for {metric}, which is not among the metrics"
    known = {metric for task in protocol.tasks for metric in protocol.metrics_of(task)}
    for metric in set(protocol.metrics) - known:
        yield f"metric {metric} is none of its tasks {', '.join(protocol.tasks)}"
    for dataset in protocol.datasets:
        for problem in _dataset_contradictions(dataset, protocol):
            yield f"dataset {dataset.name}: {problem}"
        if fingerprint_of(dataset.document) != dataset.fingerprint:
            yield f"dataset {dataset.name}: its fingerprint is not that of its own content"


def _dataset_contradictions(dataset: ProtocolDataset, protocol: Protocol) -> Iterator[str]:
    if dataset.task not in tasks_of(protocol.category):
        yield f"task {dataset.task} is none of category {protocol.category}"
    if not protocol.metrics_of(dataset.task):
        yield f"the protocol has no metric for task {dataset.task}"
    counts = {name: fact.queries for name, fact in dataset.splits.items()}
    by_hash = {ALL} if protocol.calibration is None else {ALL, CALIBRATION, HELDOUT}
    if set(counts) != by_hash and not (TEST in counts and by_hash == {ALL}):
        yield f"its splits are not {', '.join(sorted(by_hash))}"
        return
    calibration = protocol.calibration
    if calibration is not None and (
        counts[CALIBRATION] != calibration or counts[HELDOUT] != counts[ALL] - calibration
    ):
        yield "its calibration and heldout queries do not add up to 'all'"
    yield from task_module(dataset.task).entry_problems(dataset, protocol)


def _check_canonical(raw: bytes, document: dict[str, Any], path: Path) -> None:
    try:
        same = canonical_bytes(document) == raw
    except BundleError as error:
        _refuse(path, "protocol.not-canonical", error.message, fix=_AGAIN)
    if not same:
        message = "not in canonical form (RFC 8785): edited, reformatted, or a key stands twice"
        _refuse(path, "protocol.not-canonical", message, fix=_AGAIN)


def _refuse(path: Path, code: str, message: str, *, fix: str) -> NoReturn:
    raise ProtocolError(code, message, fix=fix, where=Where(file=str(path)))
