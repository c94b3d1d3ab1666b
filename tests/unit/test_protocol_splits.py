"""The hash rule: nobody can choose a split, and the published one comes out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.datasets.beir import load_beir
from runner.errors import ProtocolError
from runner.protocol.splits import ids_sha256, split_ids, split_order, union_of

HELDOUT_SHA256 = "38c686a8966f9a3bd5ac1988e1ce338be0ae53136875321a089cd2b124729283"
FIRST_HELDOUT = ("1363", "880", "411", "904", "502")
FIRST_CALIBRATION = ("636", "327", "51", "439", "1110")


def test_the_documented_first_ids_stand_in_the_documented_order() -> None:
    documented = FIRST_CALIBRATION + FIRST_HELDOUT
    assert split_order(sorted(documented)) == documented
    assert split_ids(documented, 5) == {
        "all": documented,
        "calibration": FIRST_CALIBRATION,
        "heldout": FIRST_HELDOUT,
    }


def test_the_key_is_the_hex_digest_of_the_utf8_id() -> None:
    ids = ["10", "9", "é", "🫖", "שאלה"]
    digests = [hashlib.sha256(i.encode()).hexdigest() for i in split_order(ids)]
    assert digests == sorted(digests)


def test_the_published_heldout_split_comes_out_of_the_real_data(scifact_root: Path) -> None:
    dataset = load_beir(scifact_root / "scifact", name="scifact", qrels_split="test")
    splits = split_ids(dataset.queries.keys(), 100)
    assert {name: len(ids) for name, ids in splits.items()} == {
        "all": 300,
        "calibration": 100,
        "heldout": 200,
    }
    assert splits["heldout"][:5] == FIRST_HELDOUT
    assert splits["calibration"][:5] == FIRST_CALIBRATION
    assert ids_sha256(splits["heldout"]) == HELDOUT_SHA256


def test_ids_sha256_is_of_newline_joined_ids_in_order() -> None:
    assert ids_sha256(("a", "b")) == hashlib.sha256(b"a\nb").hexdigest()
    assert ids_sha256(("b", "a")) != ids_sha256(("a", "b"))


def test_without_calibration_there_is_only_all() -> None:
    assert list(split_ids({"x": 1, "y": 2}.keys(), None)) == ["all"]


@pytest.mark.parametrize("calibration", [-1, 0, 3, 4])
def test_a_calibration_that_leaves_a_side_empty_is_refused(calibration: int) -> None:
    with pytest.raises(ProtocolError, match="bad-calibration"):
        split_ids(("a", "b", "c"), calibration)


@pytest.mark.parametrize(
    ("names", "count"),
    [(["all"], 4), (["heldout"], 3), (["calibration", "heldout"], 4), (["all", "heldout"], 4)],
)
def test_a_method_is_asked_the_union_once_in_the_order_of_all(names: list[str], count: int) -> None:
    splits = split_ids(("a", "b", "c", "d"), 1)
    union = union_of(splits, names)
    assert len(union) == len(set(union)) == count
    assert list(union) == [i for i in splits["all"] if i in set(union)]


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="'test'") as caught:
        union_of(split_ids(("a", "b"), 1), ["test"])
    assert caught.value.fix == "use all, calibration, heldout"


@given(
    st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2), st.data()
)
def test_splits_part_the_ids_whatever_their_order(ids: set[str], data: st.DataObject) -> None:
    calibration = data.draw(st.integers(1, len(ids) - 1))
    splits = split_ids(sorted(ids), calibration)
    assert splits == split_ids(sorted(ids, reverse=True), calibration)
    assert splits["calibration"] + splits["heldout"] == splits["all"]
    assert set(splits["all"]) == ids
    assert len(splits["calibration"]) == calibration
