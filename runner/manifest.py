"""YAML text of a manifest -> frozen dataclasses, with every mistake named by file, line, column.

Two kinds: a *run* manifest (methods against a frozen protocol) and a *freeze* manifest (what a
maintainer freezes into a protocol). Nothing here touches an engine, the data or the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import Json
from runner.model import Limits, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSpec:
    """One method as the manifest states it, nothing resolved yet.

    ``limits`` maps field names of ``model.Limits`` (``wall_ms``, ``memory_bytes``, ...) to values
    and holds only what the manifest sets. ``command`` is None when the image's declared method
    gives it.
    """

    name: str
    image: str
    method: str | None
    command: tuple[str, ...] | None
    config: Mapping[str, Json]
    limits: Mapping[str, int]
    cache: bool | None  # None: as the image declares, else false
    waive: tuple[str, ...]
    expect: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """A run manifest; ``raw`` is the file byte for byte, relative paths are already resolved."""

    path: Path
    raw: bytes
    name: str
    protocol: Path
    protocol_id: str | None
    data_root: Path | None
    splits: tuple[str, ...]
    seed: int | None  # None: the protocol's
    repeats: int
    jobs: int
    limits: Mapping[str, int]  # as in MethodSpec
    waive: tuple[str, ...]
    methods: tuple[MethodSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeDataset:
    """One dataset of a benchmark as its maintainer declares it.

    ``files`` maps file names within the dataset's folder to the SHA-256 (plain hex) that they must
    have; it may be empty. ``expect_documents`` / ``expect_queries`` are counts to insist on.
    """

    name: str
    task: str
    format: str
    qrels: str
    expect_documents: int | None
    expect_queries: int | None
    files: Mapping[str, str]
    source_url: str
    source_revision: str
    licence: str
    citation: str
    redistribution: str
    selection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeManifest:
    """What a maintainer freezes; ``calibration`` is None when the benchmark has only ``all``."""

    path: Path
    raw: bytes
    benchmark: str
    version: str
    title: str
    description: str
    category: str
    seed: int
    metrics: tuple[str, ...]
    primary_metric: str
    top_k: int
    calibration: int | None
    split_algorithm: str | None
    queries_without_positives: str  # "count_as_zero" | "exclude"
    budget: Limits
    datasets: tuple[FreezeDataset, ...]
