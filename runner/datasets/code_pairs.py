"""Load labelled pairs of sources: ``pairs.csv`` beside ``files.csv``.

Columns ``pair_id``, ``left_id``, ``right_id`` and ``label`` (1 plagiarised, 0 not); every other
column is a group annotation. Pairs that stand twice, mirrored or on themselves are counted; two
labels for one pair are an error, for no method could be right about both. Two pairs of the same
content under other ids may have two labels, which freezing tells: no reader of ids can know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from runner.datasets.code_sources import Sources, load_sources
from runner.datasets.code_tables import Table, read_table
from runner.datasets.lines import FileDigest, check_name, shown

PAIRS = "pairs.csv"
COLUMNS = ("pair_id", "left_id", "right_id", "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Pairs that add nothing, by id, in file order.

    ``duplicates`` and ``mirrored`` are (pair, the earlier pair that it repeats or turns round),
    ``selves`` compare a source with itself.
    """

    duplicates: list[tuple[str, str]]
    mirrored: list[tuple[str, str]]
    selves: list[str]


class Conflict(NamedTuple):
    """A pair, the first one with the same two sources under the other label, and what is the same.

    ``bytes``: both sources are identical; ``text``: but for line ends and white space at the ends.
    """

    pair: str
    other: str
    same: Literal["bytes", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePairs:
    """Pairs in file order: ``left[i]`` and ``right[i]`` are sources, ``labels[i]`` 1 or 0.

    ``groups`` maps each group column to its values.
    """

    name: str
    folder: Path
    sources: Sources
    table: Table = field(repr=False)
    ids: list[str] = field(repr=False)
    left: list[str] = field(repr=False)
    right: list[str] = field(repr=False)
    labels: list[int] = field(repr=False)
    groups: Mapping[str, list[str]] = field(repr=False)
    repeats: Repeats = field(repr=False)

    @property
    def files(self) -> tuple[FileDigest, FileDigest]:
        """Digests of the two tables."""
        return self.sources.table.digest, self.table.digest

    def listing(self) -> Iterator[tuple[str, str]]:
        """Yield (path, SHA-256 of the bytes) of every file."""
        yield from self.sources.listing()
        yield PAIRS, self.table.raw_sha256

    def content_conflicts(self) -> list[Conflict]:
        """Return the pairs that contradict an earlier pair of the same content, in file order.

        Pairs that repeat another one are left out: they are told as what they are.
        """
        sources = self.sources.by_id
        told = {pair for pair, _ in (*self.repeats.duplicates, *self.repeats.mirrored)}
        first: dict[tuple[bytes, ...], dict[int, int]] = {}
        found = []
        for row, label in enumerate(self.labels):
            if self.ids[row] in told:
                continue
            both = sources[self.left[row]].key, sources[self.right[row]].key
            known = first.setdefault(tuple(sorted(both)), {})
            other = known.get(1 - label)
            if other is not None:
                identical = self._digests(row) == self._digests(other)
                same: Literal["bytes", "text"] = "bytes" if identical else "text"
                found.append(Conflict(self.ids[row], self.ids[other], same))
            known.setdefault(label, row)
        return found

    def _digests(self, row: int) -> list[str]:
        sources = self.sources.by_id
        return sorted((sources[self.left[row]].sha256, sources[self.right[row]].sha256))

    def labels_sha256(self) -> str:
        """Return the SHA-256 of ``id TAB left TAB right TAB label LF``, sorted by id."""
        labels = map(str, self.labels)
        rows = sorted(map("\t".join, zip(self.ids, self.left, self.right, labels, strict=True)))
        return hashlib.sha256("\n".join([*rows, ""]).encode()).hexdigest()


def load_code_pairs(folder: Path, *, name: str, root: Path, prefix: str = "") -> CodePairs:
    """Load and hash the pairs in ``folder`` (or its sub-folder ``prefix``), refusing any doubt.

    Raises ``DataError`` with ``file:line`` for malformed tables, unknown sources, labels other
    than 0 and 1, and pairs with two labels.
    """
    check_name(name, "dataset")
    sources = load_sources(folder, root, prefix)
    table = read_table(folder, root, f"{prefix}{PAIRS}", COLUMNS)
    ids = table.ids("pair_id")
    if not ids:
        table.refuse("data.empty", "no pairs", "add the pairs")
    left, right = table.column("left_id"), table.column("right_id")
    for side in (left, right):
        for identity, line in zip(side, table.lines, strict=True):
            if identity not in sources.by_id:
                message = f"source {shown(identity)} is not in files.csv"
                table.refuse("data.unknown-source", message, "list it, or correct the pair", line)
    repeats = _repeats(table, ids, left, right)
    return CodePairs(
        name=name,
        folder=folder,
        sources=sources,
        table=table,
        ids=ids,
        left=left,
        right=right,
        labels=[int(label) for label in table.column("label")],
        groups={column: table.column(column) for column in table.columns if column not in COLUMNS},
        repeats=repeats,
    )


def _repeats(table: Table, ids: list[str], left: list[str], right: list[str]) -> Repeats:
    """Find repeats; refuse a label that is none and a pair whose labels contradict."""
    first: dict[tuple[str, str], tuple[int, str, bool, str]] = {}
    found = Repeats(duplicates=[], mirrored=[], selves=[])
    rows = zip(ids, left, right, table.column("label"), table.lines, strict=True)
    for pair, one, other, label, line in rows:
        if label not in ("0", "1"):
            table.refuse("data.bad-label", f"label {shown(label)}", "write 0 or 1", line)
        turned = other < one
        key = (other, one) if turned else (one, other)
        known = first.get(key)
        if known is None:
            first[key] = (line, label, turned, pair)
            if one == other:
                found.selves.append(pair)
            continue
        if known[1] != label:
            message = f"the pair {shown(one)}, {shown(other)} has label {label} here and "
            message += f"{known[1]} on line {known[0]}"
            table.refuse("data.conflicting-pair", message, "decide which label is right", line)
        (found.duplicates if known[2] == turned else found.mirrored).append((pair, known[3]))
    return found
