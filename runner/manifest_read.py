"""A manifest file -> its checked values and every fault with its line: what all kinds share."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from runner.errors import ManifestError, Where
from runner.quantities import (
    format_size_bytes,
    parse_cpus_milli,
    parse_duration_ms,
    parse_size_bytes,
)
from runner.schema_faults import SchemaFault
from runner.schemas import iter_faults
from runner.yamlstrict import MAX_BYTES, Places, read_yaml

MIN_MEMORY_BYTES = 6 << 20


def _count(value: object, where: Where | None = None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ManifestError(
        "manifest.bad-count",
        f"{value!r} is no number of things",
        fix="write a whole number above 0",
        where=where,
    )


def _memory(value: object, where: Where | None = None) -> int:
    count = parse_size_bytes(value, where)
    if count < MIN_MEMORY_BYTES:
        raise ManifestError(
            "manifest.too-little-memory",
            f"{value} of memory is less than any engine grants",
            fix=f"ask for at least {format_size_bytes(MIN_MEMORY_BYTES)}",
            where=where,
        )
    return count


#: Key of ``limits`` or ``budget`` -> (field of ``model.Limits``, reader of the value).
LIMIT_KEYS: Mapping[str, tuple[str, Callable[[object, Where | None], int]]] = {
    "wall": ("wall_ms", parse_duration_ms),
    "grace": ("grace_ms", parse_duration_ms),
    "memory": ("memory_bytes", _memory),
    "cpus": ("cpus_milli", parse_cpus_milli),
    "pids": ("pids", _count),
    "output": ("output_bytes", parse_size_bytes),
    "output_files": ("output_files", _count),
    "logs": ("log_bytes", parse_size_bytes),
    "tmp": ("tmp_bytes", parse_size_bytes),
    "shm": ("shm_bytes", parse_size_bytes),
}
#: Field of ``model.Limits`` -> key of the manifest.
LIMIT_NAMES: Mapping[str, str] = {field: key for key, (field, _) in LIMIT_KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A manifest's bytes, values and places. ``data`` fits the schema when ``faults`` is empty."""

    path: Path
    raw: bytes
    data: Mapping[str, Any]
    places: Places
    faults: tuple[ManifestError, ...]


def read_manifest(path: Path, kind: str) -> Checked:
    """Read a manifest of one schema kind; all faults that can be told apart are in the result.

    Raises ``ManifestError`` when there is nothing to look at: no file, no YAML.
    """
    return check_manifest_bytes(_read(path), path, kind)


def check_manifest_bytes(raw: bytes, path: Path, kind: str) -> Checked:
    """``read_manifest`` for bytes that are at hand; ``path`` names them and is not opened."""
    document = read_yaml(raw, str(path))
    faults = document.faults
    if not faults:
        # With a fault in the YAML the values are stand-ins: their schema says nothing.
        found = iter_faults(kind, document.data)
        faults = tuple(_located(fault, document.data, document.places) for fault in found)
    data = document.data if isinstance(document.data, dict) else {}
    return Checked(path=path, raw=raw, data=data, places=document.places, faults=faults)


def _read(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a fifo would block for ever
            raise ManifestError(
                "manifest.not-a-file",
                "this is no regular file",
                fix="give the path of a manifest",
                where=Where(file=str(path)),
            )
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ManifestError(
            "manifest.unreadable",
            f"cannot read the manifest: {reason}",
            fix="give the path of a manifest that exists and that you may read",
            where=Where(file=str(path)),
        ) from error


def _located(fault: SchemaFault, data: object, places: Places) -> ManifestError:
    """Turn a schema fault into an error that points into the file, with the best fix known."""
    if fault.code == "schema.unknown-key":
        where = places.where_key(*fault.path)
    else:
        where = places.where(*fault.path)
    value = _at(data, fault.path)
    fix = fault.fix
    if fault.path[-2:-1] in (("limits",), ("budget",)) and "config" not in fault.path:
        try:
            _, reader = LIMIT_KEYS[str(fault.path[-1])]
            reader(value, where)
        except KeyError:
            pass  # an unknown limit: the schema's message stands
        except ManifestError as error:  # knows more about quantities than a pattern does
            return error
    if fault.code == "schema.type" and "a string" in fix and isinstance(value, int | float):
        shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
        fix = f'quote it: "{shown}"'
    return ManifestError(fault.code, fault.message, fix=fix, where=where)


def in_file_order(faults: Iterable[ManifestError]) -> tuple[ManifestError, ...]:
    """Return faults by line and column, as a person works through a file."""

    def position(error: ManifestError) -> tuple[int, int]:
        where = error.where or Where()
        return where.line or 0, where.column or 0

    return tuple(sorted(faults, key=position))


def raise_first(faults: tuple[ManifestError, ...]) -> NoReturn:
    """Raise the first fault, and say how many others there are. An unknown key goes first: a
    misspelt one is why another is missing."""
    unknown = (fault for fault in faults if fault.code == "schema.unknown-key")
    first, others = next(unknown, faults[0]), len(faults) - 1
    if not others:
        raise first
    more = f"{others} other fault{'s' if others > 1 else ''}: `sealbench check` lists all"
    message = f"{first.message} (and {more})"
    raise ManifestError(first.code, message, fix=first.fix, where=first.where)


def _at(data: Any, path: tuple[str | int, ...]) -> object:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


class Faults:
    """Collects faults while a manifest is read, so that all are told at once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.found: list[ManifestError] = []

    def add(self, code: str, message: str, fix: str, *path: str | int) -> None:
        error = ManifestError(f"manifest.{code}", message, fix=fix, where=self._places.where(*path))
        self.found.append(error)

    def in_file_order(self) -> tuple[ManifestError, ...]:
        return in_file_order(self.found)

    def unique(self, what: str, values: list[str], *path: str | int) -> None:
        """Note every value of a list that stands there a second time."""
        first: dict[str, int] = {}
        for index, value in enumerate(values):
            if value in first:
                line = self._places.where(*path, first[value]).line
                message = f"{what} {value!r} is here a second time; first on line {line}"
                self.add("duplicate", message, "keep one, or rename one", *path, index)
            first.setdefault(value, index)

    def limits(self, stated: Mapping[str, Any], *path: str | int) -> dict[str, int]:
        """Return stated limits by field name of ``model.Limits``."""
        values: dict[str, int] = {}
        for key, value in stated.items():
            field, reader = LIMIT_KEYS[key]
            try:
                values[field] = reader(value, self._places.where(*path, key))
            except ManifestError as error:
                self.found.append(error)
        return values

    def relative_path(self, text: str, base: Path, *path: str | int) -> Path:
        """Return a path beside the manifest. Absolute ones are refused: the manifest is sealed
        byte for byte, and a bundle names no folder of anybody's machine."""
        if PurePosixPath(text).is_absolute() or text.startswith("~") or "\\" in text:
            self.add(
                "absolute-path",
                f"{text!r} names a place on one machine, and manifests are published",
                "write a path relative to the manifest, with /; --data-root is for the rest",
                *path,
            )
        return base / text
