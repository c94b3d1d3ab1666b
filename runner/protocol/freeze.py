"""Freeze a benchmark: declared facts and the data as they are -> a protocol with an identity.

The protocol never holds texts, labels or folders, so it can be published where the data cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.canonical import canonical_bytes, sha256_label
from runner.datasets.beir import RetrievalDataset, Shape, load_beir
from runner.errors import DataError, ProtocolError, Where
from runner.manifest import FreezeDataset, FreezeManifest
from runner.protocol.bind import locate
from runner.protocol.fingerprint import content_of, fingerprint_of
from runner.protocol.load import LOCAL, PORTABLE, parse_protocol
from runner.protocol.policies import check_query_policy, check_revision
from runner.protocol.splits import ALGORITHM, ids_sha256, split_ids
from runner.tasks import task_module

RULES_VERSION = 1


def freeze(manifest: FreezeManifest, data_root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (portable protocol, local protocol) of a freeze manifest and the data it names.

    Reads the data and writes nothing. Raises ``DataError`` where the data are absent, malformed or
    not the declared ones, ``ProtocolError`` where the declarations do not make a protocol.
    """
    if manifest.split_algorithm not in (None, ALGORITHM):
        raise ProtocolError(
            "protocol.unknown-split-algorithm",
            f"no split algorithm {manifest.split_algorithm!r}",
            fix=f"use {ALGORITHM}",
            where=Where(file=str(manifest.path)),
        )
    task_module(manifest.category).check_metrics(manifest.metrics, manifest.top_k)
    entries, roots = [], {}
    for declared in manifest.datasets:
        folder, root = locate(declared.name, data_root)
        dataset = _load(declared, folder, root)
        entries.append(_entry(declared, dataset, manifest))
        roots[declared.name] = str(folder.resolve())
    protocol = _document(manifest, entries)
    raw = canonical_bytes(protocol)
    local = {
        "schema": LOCAL,
        "protocol_id": sha256_label(raw),
        "protocol": protocol,
        "roots": roots,
    }
    parse_protocol(canonical_bytes(local), manifest.path)  # what we write, we can read
    return protocol, local


def _load(declared: FreezeDataset, folder: Path, root: Path) -> RetrievalDataset:
    task_module(declared.task)
    if declared.format != "beir":
        raise ProtocolError(
            "protocol.unknown-format",
            f"no adapter reads format {declared.format!r} for dataset {declared.name}",
            fix="use beir",
        )
    check_revision(declared.source_revision, declared.name)
    shape = Shape(documents=declared.expect_documents, queries=declared.expect_queries)
    dataset = load_beir(
        folder, name=declared.name, qrels_split=declared.qrels, root=root, shape=shape
    )
    _check_declared_files(declared.files, dataset)
    return dataset


def _check_declared_files(declared: Mapping[str, str], dataset: RetrievalDataset) -> None:
    found = {file.name: file.sha256 for file in dataset.files}
    for name, sha256 in declared.items():
        if name not in found:
            raise DataError(
                "data.unknown-file",
                f"the manifest pins {name}, which is no file of dataset {dataset.name}",
                fix=f"pin {', '.join(found)}",
            )
        if found[name] != sha256:
            raise DataError(
                "data.changed",
                f"{name} of dataset {dataset.name} has sha256 {found[name]}, the manifest "
                f"declares {sha256}",
                fix="get the published file again, or correct the declared digest",
                where=Where(file=str(dataset.folder / name)),
            )


def _entry(
    declared: FreezeDataset, dataset: RetrievalDataset, manifest: FreezeManifest
) -> dict[str, Any]:
    without = dataset.queries_without_positives
    check_query_policy(manifest.queries_without_positives, without, declared.selection)
    content = content_of(dataset)
    splits = split_ids(dataset.queries.keys(), manifest.calibration)
    return {
        **content,
        "name": declared.name,
        "fingerprint": fingerprint_of(content),
        "splits": {
            name: {"queries": len(ids), "ids_sha256": ids_sha256(ids)}
            for name, ids in splits.items()
        },
        "queries_without_positives": list(without),
        "source": {
            "url": declared.source_url,
            "revision": declared.source_revision,
            "licence": declared.licence,
            "citation": declared.citation,
            "redistribution": declared.redistribution,
        },
        "selection": declared.selection,
    }


def _document(manifest: FreezeManifest, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": PORTABLE,
        "benchmark": {
            "id": manifest.benchmark,
            "version": manifest.version,
            "title": manifest.title,
        },
        "category": manifest.category,
        "seed": manifest.seed,
        "metrics": list(manifest.metrics),
        "primary_metric": manifest.primary_metric,
        "top_k": manifest.top_k,
        "rules": {
            "tie": "score_desc_id_asc",
            "unjudged": "not_relevant",
            "gain": "linear",
            "queries_without_positives": manifest.queries_without_positives,
            "version": RULES_VERSION,
        },
        "splits": {"algorithm": ALGORITHM, "calibration": manifest.calibration},
        "budget": asdict(manifest.budget),
        "datasets": entries,
    }
