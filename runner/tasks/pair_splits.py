"""Which pairs are scored, and which are asked: all of them as soon as a threshold is fitted."""

from __future__ import annotations

from collections.abc import Iterable

from runner.errors import ProtocolError
from runner.protocol.splits import ALL, TEST, VALIDATION, split_order
from runner.tasks.pair_dataset import Pairs

__all__ = ["ALL", "TEST", "VALIDATION", "asked_ids", "ids_of", "splits_of"]


def splits_of(dataset: Pairs) -> dict[str, tuple[str, ...]]:
    """Return the opaque ids of every split, each in split order."""
    if not dataset.has_validation:
        every = split_order(dataset.ids)
        return {ALL: every, TEST: every}
    return {name: split_order(ids_of(dataset, name)) for name in (ALL, VALIDATION, TEST)}


def ids_of(dataset: Pairs, split: str) -> tuple[str, ...]:
    """Return the ids of one split; ``ProtocolError`` for a split that does not exist."""
    if split == ALL:
        return dataset.ids
    if split == TEST:
        return dataset.part_ids(validation=False)
    if split == VALIDATION and dataset.has_validation:
        return dataset.part_ids(validation=True)
    raise ProtocolError(
        "protocol.unknown-split",
        f"dataset {dataset.name} has no split {split!r}",
        fix="use all, test, or validation where there are validation pairs",
    )


def asked_ids(dataset: Pairs, splits: Iterable[str]) -> tuple[str, ...]:
    """Return the pairs that a method must score: every pair of the dataset.

    Validation pairs are asked beside test pairs in any case, so that a method cannot tell from
    what it is asked whether a threshold is being fitted.
    """
    for split in splits:
        ids_of(dataset, split)
    return dataset.ids
