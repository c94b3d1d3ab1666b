"""``freeze`` and ``bind``: content becomes a protocol, and a protocol finds its data again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from runner.commands.output import emit
from runner.errors import UsageError
from runner.manifest import load_freeze_manifest
from runner.protocol.attach import attach
from runner.protocol.freeze import freeze as freeze_benchmark
from runner.protocol.load import load_protocol
from runner.protocol.store import LOCAL_SUFFIX, write_frozen, write_local


def freeze(arguments: Namespace) -> int:
    """Freeze and write both forms of the protocol."""
    manifest = load_freeze_manifest(arguments.manifest)
    protocol, local = freeze_benchmark(manifest, arguments.data_root)
    folder = arguments.out or arguments.manifest.parent
    files = write_frozen(protocol, local, folder, force=arguments.force)
    document = {
        "protocol_id": local["protocol_id"],
        "protocol": str(files.portable),
        "local": str(files.local),
        "datasets": [
            {"name": entry["name"], "fingerprint": entry["fingerprint"], **entry["counts"]}
            for entry in protocol["datasets"]
        ],
    }
    lines = [f"protocol id {local['protocol_id']}"]
    lines += [
        f"  {entry['name']}: {_counts(entry['counts'])}, {entry['fingerprint']}"
        for entry in protocol["datasets"]
    ]
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
