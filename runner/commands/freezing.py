"""``freeze`` and ``bind``: content becomes a protocol, and a protocol finds its data again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.commands.output import emit
from runner.errors import UsageError
from runner.manifest import load_freeze_manifest
from runner.protocol.attach import attach
from runner.protocol.freeze import freeze as freeze_benchmark
from runner.protocol.load import load_protocol
from runner.protocol.store import LOCAL_SUFFIX, write_frozen, write_local
from runner.tasks.api import Dataset

#: Enough to find the rest by; a table that repeats itself throughout would bury the answer.
NAMED = 5
_WORDS = {
    "duplicate_pairs": "repeats",
    "mirrored_pairs": "turns round",
    "content_conflicts": "contradicts",
}


def freeze(arguments: Namespace) -> int:
    """Freeze and write both forms of the protocol."""
    manifest = load_freeze_manifest(arguments.manifest)
    remarks: dict[str, Mapping[str, Sequence[Mapping[str, str]]]] = {}

    def inspect(dataset: Dataset) -> None:
        from runner.tasks.pair_dataset import PairDataset

        if isinstance(dataset, PairDataset):
            remarks[dataset.name] = dataset.remarks()

    protocol, local = freeze_benchmark(manifest, arguments.data_root, inspect=inspect)
    folder = arguments.out or arguments.manifest.parent
    files = write_frozen(protocol, local, folder, force=arguments.force)
    document = {
        "protocol_id": local["protocol_id"],
        "protocol": str(files.portable),
        "local": str(files.local),
        "datasets": [
            {
                "name": entry["name"],
                "fingerprint": entry["fingerprint"],
                **entry["counts"],
                **_named(remarks.get(entry["name"])),
            }
            for entry in protocol["datasets"]
        ],
    }
    lines = [f"protocol id {local['protocol_id']}"]
    for entry in protocol["datasets"]:
        lines.append(f"  {entry['name']}: {_counts(entry['counts'])}, {entry['fingerprint']}")
        lines += _remark_lines(remarks.get(entry["name"], {}))
    lines += [f"portable: {files.portable}", f"local:    {files.local} (has your paths)"]
    emit(arguments, document, "\n".join(lines))
    return 0


def bind(arguments: Namespace) -> int:
    """Attach a data root to a portable protocol and write the local form."""
    protocol = load_protocol(arguments.protocol)
    places = dict(map(_place, arguments.place or ()))
    local = attach(protocol, arguments.data_root, places)
    name = f"{protocol.benchmark_id}{LOCAL_SUFFIX}"
    path = write_local(local, arguments.out or Path(name), force=arguments.force)
    document = {
        "protocol_id": local["protocol_id"],
        "local": str(path),
        "datasets": list(local["roots"]),
    }
    lines = [f"protocol id {local['protocol_id']}"]
    lines += [f"  {name}: the frozen data are in {root}" for name, root in local["roots"].items()]
    emit(arguments, document, "\n".join([*lines, f"local: {path} (has your paths)"]))
    return 0


def _place(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise UsageError(
            "usage.place",
            f"{text!r} is not NAME=FOLDER",
            fix="write --place irplag-pair=irplag/pair",
        )
    return name, Path(path)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items())


def _named(remarks: Mapping[str, Sequence[Mapping[str, str]]] | None) -> dict[str, Any]:
    """The part of the JSON answer about pairs: conflicts in number, the first few of each kind."""
    if remarks is None:
        return {}
    return {
        "content_conflicts": len(remarks["content_conflicts"]),
        "first": {kind: list(found[:NAMED]) for kind, found in remarks.items()},
    }


def _remark_lines(remarks: Mapping[str, Sequence[Mapping[str, str]]]) -> list[str]:
    lines = []
    for kind, found in remarks.items():
        if not found:
            continue
        text = "; ".join(_one(kind, pair) for pair in found[:NAMED])
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        head = kind.replace("_", " ")
        if kind == "content_conflicts":
            head = f"warning: {len(found)} of the same content under another label"
        lines.append(f"    {head}: {text}{more}")
    return lines


def _one(kind: str, found: Mapping[str, str]) -> str:
    if "other" not in found:
        return found["pair"]
    same = f" (same {found['same']})" if "same" in found else ""
    return f"{found['pair']} {_WORDS[kind]} {found['other']}{same}"
