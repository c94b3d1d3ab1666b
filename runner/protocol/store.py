"""Write a frozen protocol so that no reader ever sees half of it, and no identity is lost.

The portable form is for everybody; the local form names folders of this machine and is readable
by its owner only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.bundle.durable import make_directory, put_file
from runner.canonical import canonical_bytes
from runner.errors import ProtocolError, StorageError, Where
from runner.protocol.load import load_protocol

PORTABLE_SUFFIX, LOCAL_SUFFIX = ".protocol.json", ".local.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenFiles:
    """Where a protocol was written."""

    portable: Path
    local: Path


def write_frozen(
    protocol: dict[str, Any], local: dict[str, Any], folder: Path, *, force: bool = False
) -> FrozenFiles:
    """Write ``<benchmark id>.protocol.json`` (0644) and ``.local.json`` (0600) into a folder.

    Raises ``StorageError`` where another protocol already has the name, unless forced, and where
    the folder cannot be written. Writing the same protocol again changes nothing.
    """
    benchmark = protocol["benchmark"]["id"]
    files = FrozenFiles(
        portable=folder / f"{benchmark}{PORTABLE_SUFFIX}",
        local=folder / f"{benchmark}{LOCAL_SUFFIX}",
    )
    if not force:
        for path in (files.portable, files.local):
            _refuse_other(path, local["protocol_id"])
    make_directory(folder)
    put_file(files.portable, canonical_bytes(protocol), 0o644, replace=True)
    put_file(files.local, canonical_bytes(local), 0o600, replace=True)
    return files


def write_local(local: dict[str, Any], path: Path, *, force: bool = False) -> Path:
    """Write a local form (0600); ``StorageError`` where another protocol stands, unless forced."""
    if not force:
        _refuse_other(path, local["protocol_id"])
    make_directory(path.parent)
    put_file(path, canonical_bytes(local), 0o600, replace=True)
    return path


def _refuse_other(path: Path, protocol_id: str) -> None:
    if not os.path.lexists(path):
        return
    try:
        found = load_protocol(path).protocol_id
    except ProtocolError:
        found = "no valid protocol"
    if found != protocol_id:
        raise StorageError(
            "storage.other-protocol",
            f"already there, and it is {found}, not {protocol_id}",
            fix="raise the benchmark's version and id, or overwrite it with --force",
            where=Where(file=str(path)),
        )
