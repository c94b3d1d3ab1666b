"""Freeze a benchmark: declared facts and the data as they are -> a protocol with an identity.

The protocol never holds texts, labels or folders, so it can be published where the data cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from runner.canonical import canonical_bytes, sha256_label
from runner.errors import DataError, ProtocolError, Where
from runner.manifest import FreezeDataset, FreezeManifest
from runner.protocol.bind import locate, names_places
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.load import LOCAL, PORTABLE, parse_protocol
from runner.protocol.policies import check_revision
from runner.protocol.splits import ALGORITHM, ids_sha256
from runner.tasks import task_module, tasks_of
from runner.tasks.api import Dataset


def freeze(
    manifest: FreezeManifest,
    data_root: Path,
    *,
    inspect: Callable[[Dataset], None] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (portable protocol, local protocol) of a freeze manifest and the data it names.

    ``inspect`` is given every dataset once it is loaded, for what is no part of the protocol.
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
    check_metrics(manifest)
    entries, roots = [], {}
    for declared in manifest.datasets:
        folder, root = _place(declared, data_root)
        dataset = _load(declared, folder, root)
        if inspect is not None:
            inspect(dataset)
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


def _place(declared: FreezeDataset, data_root: Path) -> tuple[Path, Path]:
    """Where the data lie: as declared by ``path``, which never enters the protocol's identity."""
    path = declared.options.get("path")
    if path is not None:
        return data_root / str(path), data_root
    return locate(declared.name, data_root, below_root=names_places(declared.options))


def check_metrics(manifest: FreezeManifest) -> None:
    """Raise ``ProtocolError`` for a metric that no task of the benchmark computes."""
    used = [task_module(name) for name in dict.fromkeys(d.task for d in manifest.datasets)]
    known = [task.known_metrics(manifest.metrics) for task in used]
    for task, metrics in zip(used, known, strict=True):
        task.check_metrics(metrics, manifest.top_k)
    for metric in manifest.metrics:
        if not any(metric in metrics for metrics in known):
            used[0].check_metrics([metric], manifest.top_k)  # says what it could be instead


def _load(declared: FreezeDataset, folder: Path, root: Path) -> Dataset:
    task = task_module(declared.task)
    check_revision(declared.source_revision, declared.name)
    source = {"format": declared.format, **declared.options}
    dataset = cast(Dataset, task.load(declared.name, source, folder, root))
    _check_declared_files(declared.files, dataset)
    return dataset


def _check_declared_files(declared: Mapping[str, str], dataset: Dataset) -> None:
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


def _entry(declared: FreezeDataset, dataset: Dataset, manifest: FreezeManifest) -> dict[str, Any]:
    task = task_module(declared.task)
    content = task.content_of(dataset)
    splits = task.split_ids(dataset, manifest.calibration)
    return {
        **content,
        "name": declared.name,
        "fingerprint": fingerprint_of(content),
        "splits": {
            name: {"queries": len(ids), "ids_sha256": ids_sha256(ids)}
            for name, ids in splits.items()
        },
        **task.entry_members(dataset, declared, manifest),
        "source": {
            **_checksum(declared),
            "url": declared.source_url,
            "revision": declared.source_revision,
            "licence": declared.licence,
            "citation": declared.citation,
            "redistribution": declared.redistribution,
        },
        "selection": declared.selection,
    }


def _checksum(declared: FreezeDataset) -> dict[str, str]:
    """The checksum of the whole folder, which loading has verified, where one is declared."""
    found = declared.options.get("source_checksum")
    return {} if found is None else {"checksum": str(found)}


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
        "rules": task_module(tasks_of(manifest.category)[0]).protocol_rules(manifest),
        "splits": {"algorithm": ALGORITHM, "calibration": manifest.calibration},
        "budget": asdict(manifest.budget),
        "datasets": entries,
        **({} if manifest.tolerances is None else {"tolerances": dict(manifest.tolerances)}),
    }
