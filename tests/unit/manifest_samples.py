"""A run manifest, a freeze manifest, a protocol and a lock, small and valid."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from runner.canonical import canonical_bytes
from runner.imagelock import ImageLock, Locks, parse_lock
from runner.manifest import RunManifest, load_run_manifest

AMD64, ARM64 = "linux/amd64", "linux/arm64"


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


RUN = """\
schema: sealbench/run/v1
name: toy-lexical
protocol: toy-v1.protocol.json
splits: [all, heldout]
seed: 7
repeats: 2
limits: {wall: 10m, memory: 1GiB, cpus: 1}
methods:
  - name: okapi
    image: lexical
    config: {k1: 1.2}
  - name: mine
    image: registry.example:5000/team/ranker@sha256:%s
    command: [python3, -m, ranker]
    config: {depth: 3}
    limits: {memory: 512MiB, pids: 64}
    waive: [swap]
    expect: timeout
""" % ("e" * 64)

FREEZE = """\
schema: sealbench/freeze/v1
benchmark: toy-v1
version: "1.0.0"
title: Toy
description: A toy benchmark.
category: retrieval
seed: 3
metrics: [ndcg_at_10, recall_at_1]
primary_metric: ndcg_at_10
top_k: 10
splits: {algorithm: sha256-id-order, calibration: 2}
rules: {queries_without_positives: count_as_zero}
budget: {wall: 1h, memory: 2GiB, cpus: 2}
datasets:
  - name: toy
    task: retrieval
    format: beir
    qrels: test
    expect: {documents: 4, queries: 3}
    files: {corpus.jsonl: %s}
    source_url: https://example.org/toy
    source_revision: own:1.0.0
    licence: CC0-1.0
    citation: Nobody, 2024.
    redistribution: free
    selection: All judged queries.
""" % ("b" * 64)

LOCK: dict[str, Any] = {
    "schema": "sealbench/images-lock/v1",
    "images": {
        "base": {AMD64: {"image_id": digest("0")}},
        "lexical": {
            AMD64: {
                "image_id": digest("a"),
                "manifest_digest": digest("c"),
                "layers": [{"name": "base", "diff_id": digest("1"), "size": 10}],
                "inputs_sha256": digest("2"),
            },
            ARM64: {"image_id": digest("d")},
        },
    },
    "methods": {
        "lexical": {
            "okapi": {
                "command": ["python3", "-m", "methods.okapi"],
                "config": {"k1": 1.5, "b": 0.75, "stem": False, "tokens": "words", "top": 10},
                "cache": False,
                "tasks": ["retrieval"],
            },
            "judge": {
                "command": ["judge"],
                "config": {},
                "cache": True,
                "tasks": ["pair"],
            },
        }
    },
}

PROTOCOL: dict[str, Any] = {
    "schema": "sealbench/protocol/v1",
    "benchmark": {"id": "toy-v1", "version": "1.0.0", "title": "Toy"},
    "category": "retrieval",
    "seed": 3,
    "metrics": ["ndcg_at_10"],
    "primary_metric": "ndcg_at_10",
    "top_k": 10,
    "rules": {"queries_without_positives": "count_as_zero", "version": 1},
    "budget": {
        "wall_ms": 3_600_000,
        "grace_ms": 2_000,
        "memory_bytes": 2 << 30,
        "cpus_milli": 2_000,
        "pids": 256,
        "output_bytes": 1 << 20,
        "output_files": 10,
        "log_bytes": 1 << 20,
        "tmp_bytes": 256 << 20,
        "shm_bytes": 64 << 20,
    },
    "datasets": [
        {
            "name": name,
            "task": "retrieval",
            "fingerprint": digest(letter),
            "splits": {"all": {}, "calibration": {}, "heldout": {}},
        }
        for name, letter in (("toy", "4"), ("other", "5"))
    ],
}


def protocol_with(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PROTOCOL), **changes}


def lock_of(document: dict[str, Any] = LOCK) -> ImageLock:
    return parse_lock(canonical_bytes(document), Path("images.lock.json"))


def locks() -> Locks:
    return Locks(published=lock_of())


def write_run(folder: Path, text: str = RUN) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def run_manifest(folder: Path, *edits: tuple[str, str]) -> RunManifest:
    """The sample with parts of its text replaced; each part must be there."""
    return load_run_manifest(write_run(folder, edited(RUN, *edits)))


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text
