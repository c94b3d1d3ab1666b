"""What a method sees instead of readable ids."""

from __future__ import annotations

import pytest

from runner.tasks.opaque import opaque

IDS = [f"case-{case:02d}-{kind}-{number:02d}" for case in (1, 2, 3) for kind in ("L1", "np")
       for number in range(20)]  # fmt: skip


def test_opaque_ids_are_distinct_equally_long_and_of_the_kind() -> None:
    found = opaque("document", IDS, "sha256:00")
    assert set(found) == set(IDS)
    assert len(set(found.values())) == len(IDS)
    assert {(name[0], len(name), name[1:].isdigit()) for name in found.values()} == {("d", 4, True)}


def test_they_follow_from_the_ids_and_the_salt_alone() -> None:
    found = opaque("document", IDS, "sha256:00")
    assert found == opaque("document", reversed(IDS), "sha256:00")
    assert list(found.values()) == sorted(found.values())
    assert found != opaque("document", IDS, "sha256:01")
    queries = opaque("dquery", IDS, "sha256:00")  # the same letter, another space of ids
    assert found != queries


def test_their_order_says_nothing_about_the_order_or_the_kind_of_the_real_ids() -> None:
    found = opaque("document", IDS, "sha256:00")
    shuffled = list(found)
    assert shuffled != sorted(IDS)
    assert shuffled != IDS
    halves = shuffled[: len(IDS) // 2]
    plagiarised = sum("-L1-" in name for name in halves)
    assert 0.25 < plagiarised / len(halves) < 0.75


def test_no_id_may_stand_twice_and_odd_characters_are_no_matter() -> None:
    with pytest.raises(ValueError, match="twice"):
        opaque("source", ["a", "a"], "s")
    odd = ["a/b", "../c", "d\ne", "\u00e9", " "]
    assert sorted(opaque("source", odd, "s").values()) == ["s1", "s2", "s3", "s4", "s5"]
    assert opaque("source", [], "s") == {}
