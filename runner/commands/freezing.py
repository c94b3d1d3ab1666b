"""``freeze``: a benchmark's exact content becomes a protocol."""

from __future__ import annotations

from argparse import Namespace

from runner.commands.output import emit
from runner.manifest import load_freeze_manifest
from runner.protocol.freeze import freeze as freeze_benchmark
from runner.protocol.store import write_frozen


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


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items())
