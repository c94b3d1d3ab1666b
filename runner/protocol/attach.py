"""Attach data to a portable protocol: the local form, with folders of this machine.

Every dataset is loaded and hashed first; a local form is only written for the frozen data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import ProtocolError
from runner.protocol.bind import bind_dataset, locate, names_places, says_where_from
from runner.protocol.load import LOCAL, Protocol


def attach(protocol: Protocol, data_root: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    """Return the local form of a protocol.

    ``places`` (dataset name to folder, relative to the data root unless absolute) win over the
    usual place. Raises ``ProtocolError`` for a place of no dataset and ``DataError`` where the data
    are not the frozen ones.
    """
    names = [entry.name for entry in protocol.datasets]
    for name in places:
        if name not in names:
            raise ProtocolError(
                "protocol.unknown-root",
                f"{name!r} is no dataset of the protocol",
                fix=f"use one of: {', '.join(names)}",
            )
    roots = {}
    for entry in protocol.datasets:
        with says_where_from(entry):
            if entry.name in places:
                folder = root = data_root / places[entry.name]
            else:
                below = names_places(entry.document)
                folder, root = locate(entry.name, data_root, below_root=below)
            bind_dataset(entry, folder, root, protocol.calibration)
        roots[entry.name] = str(folder.resolve())
    return {
        "schema": LOCAL,
        "protocol_id": protocol.protocol_id,
        "protocol": dict(protocol.document),
        "roots": roots,
    }
