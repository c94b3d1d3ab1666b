"""One entry of a manifest with a ``matrix`` -> one method for each combination of its settings.

Every combination is a method of its own, with a name, an id and outcomes: ``tpms`` with
``matrix: {regime: [t, ta], profile_length: [1, 2]}`` is ``tpms.t.1``, ``tpms.t.2``, ``tpms.ta.1``
and ``tpms.ta.2``. The last setting turns fastest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from runner.manifest_read import Faults

MAX_COMBINATIONS = 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}\Z")


def expand(
    entries: Sequence[Mapping[str, Any]], faults: Faults
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (index in the file, entry without a matrix) for every method, in file order."""
    for index, entry in enumerate(entries):
        matrix = entry.get("matrix")
        if matrix is None or "precomputed" in entry:  # which the caller refuses
            yield index, entry
        elif _sound(entry, matrix, ("methods", index, "matrix"), faults):
            yield from ((index, one) for one in _combinations(entry, matrix, index, faults))


def _sound(
    entry: Mapping[str, Any], matrix: Mapping[str, Any], path: tuple[str | int, ...], faults: Faults
) -> bool:
    size = prod(map(len, matrix.values()))
    if size > MAX_COMBINATIONS:
        message = f"{size} combinations; at most {MAX_COMBINATIONS} are taken"
        faults.add("matrix-size", message, "split the entry", *path)
    for key, values in matrix.items():
        faults.unique("value", [_text(value) for value in values], *path, key)
        if key in entry.get("config", {}):
            message = f"{key} stands in config and in the matrix"
            faults.add("matrix-config", message, "remove it from one of them", *path, key)
    return size <= MAX_COMBINATIONS


def _combinations(
    entry: Mapping[str, Any], matrix: Mapping[str, Any], index: int, faults: Faults
) -> Iterator[Mapping[str, Any]]:
    rest = {key: value for key, value in entry.items() if key != "matrix"}
    if "command" not in rest:
        rest.setdefault("method", entry["name"])  # what the image declares; the name gets longer
    for values in product(*matrix.values()):
        name = ".".join([entry["name"], *map(_text, values)])
        if not _NAME.match(name):
            message = f"{name!r} cannot name a method"
            fix = "use values of a-z, 0-9, '_' and '-', and at most 40 characters in all"
            faults.add("matrix-name", message, fix, "methods", index, "matrix")
            return
        config = {**entry.get("config", {}), **dict(zip(matrix, values, strict=True))}
        yield {**rest, "name": name, "config": config}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
