"""Labelled pairs as the task knows them: opaque ids outside, real ids only in score artifacts.

Validation pairs, where there are any, are asked together with the test pairs and under ids of the
same kind: a method cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runner.canonical import Json
from runner.datasets.code_pairs import CodePairs, load_code_pairs
from runner.datasets.code_sources import Sources, tree_checksum
from runner.datasets.lines import FileDigest
from runner.errors import DataError
from runner.protocol.fingerprint import fingerprint_of
from runner.tasks.opaque import opaque

FORMAT = "code-pairs"
_APART = "\0"  # no id has one: parts ids of validation from those of test


class Pairs(Protocol):
    """What scoring needs of labelled pairs, wherever they come from; see ``PairDataset``."""

    @property
    def name(self) -> str: ...

    @property
    def ids(self) -> tuple[str, ...]: ...

    @property
    def group_names(self) -> tuple[str, ...]:
        """Columns that annotate groups, in file order."""

    @property
    def has_validation(self) -> bool:
        """Are there pairs to fit a threshold on?"""

    def part_ids(self, *, validation: bool) -> tuple[str, ...]: ...

    def column(self, name: str) -> list[Any]: ...

    def group_column(self, name: str) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDataset:
    """Pairs by opaque id, ascending. ``rows[i]`` is where pair ``ids[i]`` stands: in ``test``, or
    (from ``len(test.ids)`` on) in ``validation``. ``aliases`` maps sources to opaque ids."""

    name: str
    folder: Path
    test: CodePairs
    validation: CodePairs | None
    content: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Json]
    ids: tuple[str, ...] = field(repr=False)
    rows: tuple[int, ...] = field(repr=False)
    aliases: Mapping[str, str] = field(repr=False)

    @property
    def files(self) -> tuple[FileDigest, ...]:
        """Digests of the tables, in the order of the protocol's entry."""
        return tuple(file for part in self.parts for file in part.files)

    @property
    def parts(self) -> tuple[CodePairs, ...]:
        """Test, and validation where there is one."""
        return (self.test,) if self.validation is None else (self.test, self.validation)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Columns that annotate groups, in file order."""
        return tuple(self.test.groups)

    @property
    def has_validation(self) -> bool:
        """Are there pairs to fit a threshold on?"""
        return self.validation is not None

    def part_ids(self, *, validation: bool) -> tuple[str, ...]:
        """Return the opaque ids of the validation or of the test pairs."""
        tested = len(self.test.ids)
        rows = zip(self.ids, self.rows, strict=True)
        return tuple(pair for pair, row in rows if (row >= tested) == validation)

    def column(self, name: str) -> list[Any]:
        """Return a member of ``CodePairs`` for every pair, in the order of ``ids``."""
        values = [value for part in self.parts for value in getattr(part, name)]
        return [values[row] for row in self.rows]

    def group_column(self, name: str) -> list[str]:
        """Return a group column's value for every pair, in the order of ``ids``."""
        values = [value for part in self.parts for value in part.groups[name]]
        return [values[row] for row in self.rows]

    def iter_pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (pair, left, right) under opaque ids, in the order of ``ids``."""
        sides = [
            [self.aliases[_key(source, part is self.validation)] for source in side]
            for part in self.parts
            for side in (part.left, part.right)
        ]
        left = [alias for side in sides[0::2] for alias in side]
        right = [alias for side in sides[1::2] for alias in side]
        for pair, row in zip(self.ids, self.rows, strict=True):
            yield pair, left[row], right[row]

    def remarks(self) -> dict[str, list[dict[str, str]]]:
        """Return the pairs that whoever freezes them should look at, under their real ids.

        The lists of ``duplicate_pairs`` and ``mirrored_pairs`` name the earlier pair too, that of
        ``content_conflicts`` the one with the same content and the other label, and what is the
        ``same`` (``bytes`` or ``text``). Nothing of it enters a protocol.
        """
        return {
            "duplicate_pairs": [
                {"pair": pair, "other": other}
                for part in self.parts
                for pair, other in part.repeats.duplicates
            ],
            "mirrored_pairs": [
                {"pair": pair, "other": other}
                for part in self.parts
                for pair, other in part.repeats.mirrored
            ],
            "self_pairs": [{"pair": pair} for part in self.parts for pair in part.repeats.selves],
            "content_conflicts": [
                conflict._asdict() for part in self.parts for conflict in part.content_conflicts()
            ],
        }

    def iter_sources(self) -> Iterator[tuple[str, Sources, str]]:
        """Yield (opaque id, where it lies, its real id), in the order of opaque ids."""
        for key, alias in self.aliases.items():
            part, _, real = key.rpartition(_APART)
            held = self.validation if part and self.validation is not None else self.test
            yield alias, held.sources, real


def load_pairs(name: str, source: Mapping[str, Any], folder: Path, root: Path) -> PairDataset:
    """Load a dataset of pairs; ``source`` is a freeze manifest's entry or a protocol's.

    Raises ``DataError``, also when the source checksum that a freeze manifest declares is not that
    of the files.
    """
    test = load_code_pairs(folder, name=name, root=root)
    sub = source.get("validation", source.get("validation_path"))
    validation = None
    if sub is not None:
        validation = load_code_pairs(folder, name=name, root=root, prefix=f"{sub}/")
        _check_validation(test, validation)
    check_checksum(source, _listing(test, validation, sub), name)
    content = _content(test, validation, sub)
    salt = fingerprint_of(content)
    keys = list(test.ids) if validation is None else [*test.ids, *validation.ids]
    position = {pair: row for row, pair in enumerate(keys)}
    pairs = opaque("pair", keys, salt)
    known = [_key(identity, False) for identity in test.sources.by_id]
    if validation is not None:
        known += [_key(identity, True) for identity in validation.sources.by_id]
    return PairDataset(
        name=name,
        folder=folder,
        test=test,
        validation=validation,
        content=content,
        options=dict(source.get("similarity_options", {})),
        ids=tuple(pairs.values()),
        rows=tuple(position[pair] for pair in pairs),
        aliases=opaque("source", known, salt),
    )


def check_checksum(
    source: Mapping[str, Any], listing: Iterator[tuple[str, str]], name: str
) -> None:
    """Compare a declared ``source_checksum`` with the files; protocols declare none."""
    declared = source.get("source_checksum")
    if declared is None:
        return
    found = tree_checksum(listing)
    if found != declared:
        raise DataError(
            "data.wrong-checksum",
            f"the files of dataset {name} have checksum {found}, declared is {declared}",
            fix="get the published files again, or correct source_checksum",
        )


def _key(identity: str, validation: bool) -> str:
    return f"validation{_APART}{identity}" if validation else identity


def _check_validation(test: CodePairs, validation: CodePairs) -> None:
    twice = sorted(set(test.ids) & set(validation.ids))
    if twice:
        message = f"pair id {twice[0]!r} is in the test pairs too"
        validation.table.refuse("data.duplicate-id", message, "give pairs ids of their own")
    if test.groups.keys() != validation.groups.keys():
        names = ", ".join(test.groups) or "none"
        message = f"its group columns are not those of the test pairs: {names}"
        validation.table.refuse("data.group-columns", message, "annotate both alike")


def _listing(
    test: CodePairs, validation: CodePairs | None, sub: str | None
) -> Iterator[tuple[str, str]]:
    yield from test.listing()
    if validation is not None:
        for path, sha256 in validation.listing():
            yield f"{sub}/{path}", sha256


def _content(test: CodePairs, validation: CodePairs | None, sub: str | None) -> dict[str, Any]:
    parts = [part for part in (test, validation) if part is not None]
    files = [file for part in parts for file in part.files]
    return {
        "task": "pair",
        "format": FORMAT,
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in files],
        "payload": {
            "sources_sha256": test.sources.payload(),
            "labels_sha256": test.labels_sha256(),
        },
        "counts": {
            "pairs": len(test.ids),
            "positives": sum(test.labels),
            "sources": len(test.sources.by_id),
            "duplicate_pairs": sum(len(part.repeats.duplicates) for part in parts),
            "mirrored_pairs": sum(len(part.repeats.mirrored) for part in parts),
            "self_pairs": sum(len(part.repeats.selves) for part in parts),
            "empty_sources": sum(part.sources.empty for part in parts),
            "undecodable_sources": sum(part.sources.undecodable for part in parts),
            "validation_pairs": 0 if validation is None else len(validation.ids),
            "validation_positives": 0 if validation is None else sum(validation.labels),
        },
        "group_columns": sorted(test.groups),
        "validation": sub,
    }
