"""Labelled pairs from the score files of a bundle: every column but the score.

The protocol has the digest of the table of pairs, whatever the order of its rows, and a score file
has all of its columns: these labels are proven to be the frozen ones. What no score file says is
which pairs are for validation. Where whole groups are, the digest of their ids finds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

from runner.datasets.code_pairs import COLUMNS
from runner.datasets.code_tables import table_digest
from runner.protocol.load import ProtocolDataset
from runner.protocol.splits import ALL, VALIDATION, ids_sha256, split_order
from runner.schema_faults import shown
from runner.tasks.api import SealedFile, SealedSource, Unavailable
from runner.tasks.opaque import opaque
from runner.tasks.pair_policies import FIXED
from runner.tasks.sealed import check_id, header, oversized, read_table, refuse

_ID, _LEFT, _RIGHT, _LABEL = range(4)
_LABELS = ("0", "1")
_Chain = tuple[str, "_Chain"] | None
#: How long validation pairs are looked for: steps through choices of groups, and pairs hashed.
MAX_STEPS, MAX_HASHED = 1 << 16, 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPairs:
    """Stands where ``PairDataset`` stands in scoring; ``rows[i]`` are the columns of ``ids[i]``.

    ``validation`` marks validation pairs; None where nobody asks which they are.
    """

    name: str
    ids: tuple[str, ...] = field(repr=False)
    rows: Sequence[Sequence[str]] = field(repr=False)
    group_names: tuple[str, ...]
    has_validation: bool
    validation: Sequence[bool] | None = field(repr=False)
    proven: bool
    believed: int = 0

    def of_unit(self, scores: str) -> SealedPairs:  # noqa: ARG002 - all units have equal labels
        """Return the pairs themselves."""
        return self

    def part_ids(self, *, validation: bool) -> tuple[str, ...]:
        """Return the opaque ids of the validation or of the test pairs."""
        marks = self.validation or [False] * len(self.ids)
        return tuple(p for p, mark in zip(self.ids, marks, strict=True) if mark == validation)

    def column(self, name: str) -> list[Any]:
        """Return a member of ``CodePairs`` for every pair, in the order of ``ids``."""
        position = ("ids", "left", "right", "labels").index(name)
        values = [row[position] for row in self.rows]
        return [int(value) for value in values] if position == _LABEL else values

    def group_column(self, name: str) -> list[str]:
        """Return a group column's value for every pair, in the order of ``ids``."""
        position = len(COLUMNS) + self.group_names.index(name)
        return [row[position] for row in self.rows]


def sealed_pairs(source: SealedSource) -> SealedPairs | Unavailable:
    """Return the labels that all score files of a dataset agree on; see ``api.Task``."""
    files = [unit.scores for unit in source.units]
    if not files:
        return Unavailable(reason="no score file of it is there")
    if (large := oversized(files)) is not None:
        return large
    entry, first = source.entry, files[0]
    columns, rows = _labels(first, entry)
    for file in files[1:]:
        _check_equal(file, first, [columns, *rows])
    aliases = opaque("pair", [row[_ID] for row in rows], entry.fingerprint)
    if list(aliases) != [row[_ID] for row in rows]:
        refuse(first, "its pairs do not stand in the order of their opaque ids")
    dataset = SealedPairs(
        name=entry.name,
        ids=tuple(aliases.values()),
        rows=rows,
        group_names=tuple(columns[len(COLUMNS) :]),
        has_validation=entry.counts["validation_pairs"] > 0,
        validation=None,
        proven=False,
    )
    return _proven(dataset, columns, source)


def _labels(file: SealedFile, entry: ProtocolDataset) -> tuple[list[str], list[list[str]]]:
    """Return the header and every row without scores, checked by themselves and by counts."""
    table = read_table(file)
    columns = header(table)
    groups = sorted(columns[len(COLUMNS) : -1])
    known = entry.document["group_columns"]
    ends = [*columns[: len(COLUMNS)], *columns[-1:]]
    if ends != [*COLUMNS, "score"] or groups != known:
        refuse(file, f"its columns are not {', '.join([*COLUMNS, *known, 'score'])}", 1)
    counts, rows = entry.counts, list[list[str]]()
    seen: set[str] = set()
    whole = counts["pairs"] + counts["validation_pairs"]
    for line, (*row, _) in table:
        for identity in row[:_LABEL]:
            check_id(file, line, "pair or source", identity)
        if row[_LABEL] not in _LABELS:
            refuse(file, f"label {shown(row[_LABEL])} is neither 0 nor 1", line)
        if row[_ID] in seen or len(rows) == whole:
            refuse(file, f"a pair twice, or more than the {whole} pairs of the protocol", line)
        seen.add(row[_ID])
        rows.append(row)
    positives = sum(row[_LABEL] == "1" for row in rows)
    expected = counts["positives"] + counts["validation_positives"]
    if (len(rows), positives) != (whole, expected):
        said = f"{len(rows)} pairs, {positives} of them positive"
        refuse(file, f"it has {said}; the protocol has {whole} and {expected}")
    return columns[:-1], rows


def _check_equal(file: SealedFile, first: SealedFile, expected: Sequence[Sequence[str]]) -> None:
    for one, found in zip_longest(expected, read_table(file)):
        line, row = found or (None, [""])
        if one is None or list(one) != row[:-1]:
            refuse(file, f"its pairs, labels or groups are not those of {first.path}", line)


def _proven(
    dataset: SealedPairs, columns: Sequence[str], source: SealedSource
) -> SealedPairs | Unavailable:
    """Hold the labels against the digests that the protocol froze."""
    entry, first = source.entry, source.units[0].scores
    validation = [False] * len(dataset.ids)
    if dataset.has_validation:
        found = _validation(dataset, entry)
        if found is None:
            fixed = source.protocol.rules["threshold_policy"]["type"] == FIXED
            if fixed and set(source.splits) == {ALL}:
                return dataset
            return Unavailable(reason="nothing in a score file says which pairs are for validation")
        validation = found
    tables = [file for file in entry.files if file.name.rpartition("/")[2] == "pairs.csv"]
    for table, part in zip(tables, (False, True), strict=False):
        rows = [r for r, mark in zip(dataset.rows, validation, strict=True) if mark == part]
        if table_digest(table.name, columns, rows) != table:
            refuse(first, "its pairs, labels and groups are not those that the protocol froze")
    return SealedPairs(
        name=dataset.name,
        ids=dataset.ids,
        rows=dataset.rows,
        group_names=dataset.group_names,
        has_validation=dataset.has_validation,
        validation=validation,
        proven=True,
    )


def _validation(dataset: SealedPairs, entry: ProtocolDataset) -> list[bool] | None:
    """Mark the validation pairs: groups whose pairs have the frozen digest of the split's ids."""
    digest = entry.splits[VALIDATION].ids_sha256
    for name in dataset.group_names:
        column = dataset.group_column(name)
        sizes = sorted(Counter(column).items())
        choices = _choices(sizes, entry.counts["validation_pairs"])
        for chosen in islice(choices, MAX_HASHED // len(column)):
            marks = [value in chosen for value in column]
            ids = [pair for pair, mark in zip(dataset.ids, marks, strict=True) if mark]
            if ids_sha256(split_order(ids)) == digest:
                return marks
    return None


def _choices(sizes: Sequence[tuple[str, int]], wanted: int) -> Iterator[frozenset[str]]:
    """Yield sets of groups that have so many pairs together."""
    # A choice is a chain, which its continuations share: there may be as many groups as pairs.
    pending: list[tuple[int, int, _Chain]] = [(0, wanted, None)]
    for _ in range(MAX_STEPS):
        if not pending:
            return
        at, missing, chosen = pending.pop()
        if missing == 0:
            yield frozenset(_values(chosen))
        elif at < len(sizes):
            value, size = sizes[at]
            pending.append((at + 1, missing, chosen))
            if size <= missing:
                pending.append((at + 1, missing - size, (value, chosen)))


def _values(chain: _Chain) -> Iterator[str]:
    while chain is not None:
        value, chain = chain
        yield value
