"""Load labelled pairs of sources: ``pairs.csv`` beside ``files.csv``.

Columns ``pair_id``, ``left_id``, ``right_id`` and ``label`` (1 plagiarised, 0 not); every other
column is a group annotation. Pairs that stand twice, mirrored or on themselves are counted; two
labels for one pair are an error, for no method could be right about both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.datasets.code_sources import Sources, load_sources
from runner.datasets.code_tables import Table, read_table
from runner.datasets.lines import FileDigest, check_name, shown

PAIRS = "pairs.csv"
COLUMNS = ("pair_id", "left_id", "right_id", "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePairs:
    """Pairs in file order: ``left[i]`` and ``right[i]`` are sources, ``labels[i]`` 1 or 0.

    ``groups`` maps each group column to its values. ``duplicates``, ``mirrored`` and ``selves``
    count pairs that repeat an earlier one, turn an earlier one round, or compare a source with
    itself.
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
    duplicates: int
    mirrored: int
    selves: int

    @property
    def files(self) -> tuple[FileDigest, FileDigest]:
        """Digests of the two tables."""
        return self.sources.table.digest, self.table.digest

    def listing(self) -> Iterator[tuple[str, str]]:
        """Yield (path, SHA-256 of the bytes) of every file."""
        yield from self.sources.listing()
        yield PAIRS, self.table.raw_sha256

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
    duplicates, mirrored, selves = _repeats(table, left, right)
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
        duplicates=duplicates,
        mirrored=mirrored,
        selves=selves,
    )


def _repeats(table: Table, left: list[str], right: list[str]) -> tuple[int, int, int]:
    """Count repeats; refuse a label that is none and a pair whose labels contradict."""
    first: dict[tuple[str, str], tuple[int, str, bool]] = {}
    duplicates = mirrored = selves = 0
    rows = zip(left, right, table.column("label"), table.lines, strict=True)
    for one, other, label, line in rows:
        if label not in ("0", "1"):
            table.refuse("data.bad-label", f"label {shown(label)}", "write 0 or 1", line)
        turned = other < one
        key = (other, one) if turned else (one, other)
        known = first.get(key)
        if known is None:
            first[key] = (line, label, turned)
            selves += one == other
            continue
        if known[1] != label:
            message = f"the pair {shown(one)}, {shown(other)} has label {label} here and "
            message += f"{known[1]} on line {known[0]}"
            table.refuse("data.conflicting-pair", message, "decide which label is right", line)
        mirrored += known[2] != turned
        duplicates += known[2] == turned
    return duplicates, mirrored, selves
