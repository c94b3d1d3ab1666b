"""Score files that are none, what score files do not determine, and queries without positives."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runner.errors import BundleError
from runner.tasks import pair_sealed
from runner.tasks import sealed as reading
from tests.plagiarism import bench
from tests.score_files import (
    FOUND,
    Change,
    Make,
    Sealed,
    beir,
    maker,
    methods_of,
    other_threshold,
    results,
    run_splits,
    scaled,
)
from tests.unit.code_files import CONTENT, FITTED, FIXED, PAIRS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    return maker(tmp_path_factory)


# --- hostile score files -----------------------------------------------------------------------


def raw(pattern: str, change: Callable[[bytes], bytes]) -> Change:
    def act(bundle: Path) -> None:
        for path in bundle.glob(pattern):
            path.write_bytes(change(path.read_bytes()))

    return act


#: pattern of files -> what is written there; each must be refused by name, with a line.
HOSTILE: dict[str, tuple[str, str, Callable[[bytes], bytes], str]] = {
    "empty": ("code", "scores/*/toy-pair.csv", lambda _: b"", "no header"),
    "a blank header": ("code", "scores/*/toy-pair.csv", lambda _: b"\n", "columns"),
    "a cut line": ("code", "scores/*/toy-pair.csv", lambda data: data[:-1], "without an end"),
    "NUL": ("code", "scores/*/toy-pair.csv", lambda d: d.replace(b"g1", b"g\0"), "NUL"),
    "Latin-1": ("code", "scores/*/toy-pair.csv", lambda d: d.replace(b"g1", b"\xe9"), "UTF-8"),
    "an open quote": (
        "code", "scores/*/toy-pair.csv", lambda d: d.replace(b"t1", b'"t1'), "not CSV"),
    "a row too short": (
        "code", "scores/*/toy-pair.csv", lambda d: d.replace(b",g1,", b",", 1), "fields"),
    "a blank line": ("code", "scores/*/toy-pair.csv", lambda d: d + b"\n", "0 fields"),
    "a label of 2": ("code", "scores/*/toy-pair.csv", lambda d: d.replace(b",1,", b",2,"), "label"),
    "no group": ("code", "scores/*/toy-pair.csv", lambda d: d.replace(b"group", b"gruop"),
                 "columns"),
    "a pair twice": ("code", "scores/*/toy-pair.csv", lambda d: d.replace(b"t1", b"t2"), "twice"),
    "a pair too few": (
        "code", "scores/*/toy-pair.csv", lambda d: d[: d[:-1].rindex(b"\n") + 1], "3 pairs"),
    "a control character": (
        "code", "scores/*/toy-pair.csv", lambda d: d.replace(b"t1", b"t\x1b"), "control"),
    "a grade that is none": (
        "code", "scores/*/toy-retrieval.csv", lambda d: d.replace(b",1,", b",1e3,"), "no grade"),
    "an unknown query": (
        "code", "scores/*/toy-retrieval.csv", lambda d: d.replace(b"q-g1", b"q-g3"), "query"),
    "too many documents": (
        "code", "scores/*/toy-retrieval.csv", lambda d: d + b"q-g1-orig,x,0,0.1\n", "too many"),
    "counts that are none": (
        "code", "per-query/*/*.csv", lambda d: d.replace(b"orig,2", b"orig,-2"), "counts"),
    "a huge count": (
        "code", "per-query/*/*.csv", lambda d: d.replace(b"orig,2", b"orig,999999999"), "in all"),
    "other columns": ("code", "per-query/*/*.csv", lambda d: d.replace(b"mrr", b"map"), "columns"),
    "a stranger": ("people", "scores/*/toy-1.csv", lambda d: d.replace(b"r1,", b"r9,"), "no ids"),
    "a rating that is none": (
        "people", "scores/*/toy-1.csv", lambda d: d.replace(b",5.0,", b",nan,"), "no number"),
    "a rating twice": (
        "people", "scores/*/toy-1.csv", lambda d: d.replace(b",s3,", b",s1,"), "twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_score_file_that_is_none_is_refused_by_name(
    made: Make, tmp_path: Path, name: str
) -> None:
    which, pattern, change, words = HOSTILE[name]
    report = made(which).changed(tmp_path, raw(pattern, change)).verify()
    fault = next(one for one in report.faults if one.code == "bundle.sealed-labels")
    assert words in fault.message
    assert Path(fault.file).match(pattern)


# --- what is not determined --------------------------------------------------------------------


def test_a_score_file_beyond_the_limit_is_not_looked_at(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 100)
    report = made("code").verify()
    assert report.faults == ()
    assert report.recomputed.detail.startswith(
        "not looked at: toy-pair (scores/alike/toy-pair.csv has more than"
    )
    assert "toy-retrieval" in report.recomputed.detail


def test_one_dataset_that_is_not_looked_at_leaves_the_others(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 250)  # more than the pairs', less than the rankings'
    sizes = [path.stat().st_size for path in made("code").bundle.glob("scores/*/*.csv")]
    assert min(sizes) < 250 < max(sizes)
    assert made("code").verify().faults == ()
    detail = made("code").verify().recomputed.detail
    assert "not looked at: toy-retrieval (" in detail
    assert "the labels in them have the digests that the protocol froze" in detail
    report = made("code").changed(tmp_path, results(scaled(0.99))).verify()
    places = [fault.message for fault in report.faults]
    assert any(place.startswith("per_dataset") and "toy-pair" in place for place in places)
    assert not any("toy-retrieval" in place for place in places)


def validated(
    folder: Path, *, asked: str = "test", pairs: Sequence[Sequence[str]] | None = None,
    **freezing: str,
) -> Sealed:  # fmt: skip
    made = bench(folder, validation=True, pairs=pairs, **freezing)
    made.run(folder / "out", "alike", "lengths", split=asked)
    return Sealed(
        bundle=folder / "out" / "bundle", protocol=made.protocol, data_root=made.data_root
    )


def test_validation_pairs_are_found_by_their_groups_and_the_threshold_comes_out_again(
    tmp_path: Path,
) -> None:
    made = validated(tmp_path, threshold=FITTED)
    report = made.verify()
    assert report.faults == made.verify(labels=True).faults == ()
    assert "toy-pair, which have the protocol's digest" in report.recomputed.detail
    (tmp_path / "copy").mkdir()
    changed = made.changed(tmp_path / "copy", results(other_threshold)).verify()
    assert any("threshold" in fault.message for fault in changed.faults)


@pytest.mark.parametrize(
    ("asked", "threshold", "known"),
    [("test", FITTED, False), ("test", FIXED, False), ("all", FIXED, True)],
)
def test_validation_pairs_that_nothing_tells_apart_are_not_looked_at(
    tmp_path: Path, asked: str, threshold: str, known: bool
) -> None:
    mixed = [(*row[:4], "g9" if row[4] == "g1" else "g2") for row in PAIRS]  # g9: validation too
    made = validated(tmp_path, asked=asked, pairs=mixed, threshold=threshold, split=CONTENT)
    report = made.verify()
    assert report.faults == made.verify(labels=True).faults == ()
    reason = "toy-pair (nothing in a score file says which pairs are for validation)"
    assert (reason not in report.recomputed.detail) == known


def test_as_many_groups_as_pairs_cost_no_memory_that_grows_with_their_square() -> None:
    sizes = [(f"g{number}", 1) for number in range(20_000)]
    tracemalloc.start()
    chosen = next(pair_sealed._choices(sizes, 19_999))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(chosen) == 19_999
    assert peak < 32 << 20


def test_nothing_that_was_ok_is_nothing_to_look_at(tmp_path: Path) -> None:
    made = bench(tmp_path)
    made.run(tmp_path / "out", "crash")
    report = made.verify(tmp_path / "out", labels=False)
    assert report.faults == ()
    assert report.recomputed.holds is None


# --- queries without a relevant document -------------------------------------------------------


@pytest.mark.parametrize(("policy", "official"), [("count_as_zero", 0), ("exclude", 1)])
def test_both_means_are_shown_where_a_query_has_no_positives(
    tmp_path: Path, policy: str, official: int
) -> None:
    from runner.report.words import two_means

    protocol, root = beir(tmp_path, policy=policy)
    made = run_splits(tmp_path / "run", protocol, root, methods_of(FOUND), ["all"])
    assert made.verify().faults == made.verify(labels=True).faults == ()
    document = json.loads((made.bundle / "results.json").read_bytes())
    summary = next(one for one in document["summaries"] if one["method"] == "first")
    found = summary["queries_without_positives"]
    assert (found["count"], found["policy"]) == (1, policy)
    assert found["means"]["recall_at_2"] == {
        "all_queries": pytest.approx(0.5), "with_positives": pytest.approx(0.75),
    }  # fmt: skip
    score = next(
        row["score"] for row in document["per_dataset"]
        if (row["method"], row["metric"]) == ("first", "recall_at_2")
    )  # fmt: skip
    assert score == pytest.approx((0.5, 0.75)[official])
    (sentence,) = two_means(document, "all", "recall_at_2")
    assert sentence == (
        "1 of 3 queries of toy have no relevant document; recall_at_2 over all queries and over "
        f"the others (the score is that over {('all queries', 'the others')[official]}): "
        "first 0.500000 and 0.750000, second 0.500000 and 0.750000"
    )


def test_nothing_is_said_where_every_query_has_positives(made: Make) -> None:
    document = json.loads((made("code").bundle / "results.json").read_bytes())
    assert not any("queries_without_positives" in one for one in document["summaries"])


def test_errors_in_score_files_are_bundle_errors() -> None:
    from runner.tasks.api import SealedFile

    file = SealedFile(path="scores/a/b.csv", size=3, open=lambda: io.BytesIO(b"a,b\n1\n"))
    with pytest.raises(BundleError, match="1 fields, the header has 2") as caught:
        list(reading.read_table(file))
    assert str(caught.value.where) == "scores/a/b.csv:2"
