"""Assignments: exact, within capacities, and refused where nothing fits."""

from __future__ import annotations

import csv
import json
import random
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from runner.assign import Problem, capacities, fairest, most_similar
from runner.cli import main
from runner.commands.assigning import read_capacities
from runner.errors import EXIT_OK, DataError, UsageError
from tests.unit.reviewer_files import PEOPLE, RATINGS, SUBMISSIONS, write_compact
from tests.unit.test_expertise_task import sealed


def problem(scores: list[list[float]], per_paper: int, capacity: list[int]) -> Problem:
    matrix = np.array(scores)
    return Problem(
        reviewers=[f"r{n}" for n in range(len(matrix))],
        papers=[f"s{n}" for n in range(matrix.shape[1])],
        scores=matrix,
        per_paper=per_paper,
        capacity=capacity,
    )


def every_assignment(given: Problem) -> list[np.ndarray]:
    """All that is possible, by trying: for tiny problems."""
    people = range(len(given.reviewers))
    found = []
    for groups in product(combinations(people, given.per_paper), repeat=len(given.papers)):
        chosen = np.zeros(given.scores.shape, dtype=bool)
        for column, group in enumerate(groups):
            chosen[list(group), column] = True
        if (chosen.sum(axis=1) <= np.array(given.capacity)).all():
            found.append(chosen)
    return found


def test_by_hand() -> None:
    # The greedy pair (r0, s0) would leave s1 with nothing.
    given = problem([[1.0, 0.9], [0.8, 0.0]], 1, [1, 1])
    best = most_similar(given)
    assert best.lines() == [("s0", "r1", 0.8), ("s1", "r0", 0.9)]
    assert best.statistics() == {
        "total": pytest.approx(1.7),
        "mean_score": pytest.approx(0.85),
        "lowest_score": 0.8,
        "worst_paper": "s0",
        "worst_paper_total": 0.8,
        "load_min": 1,
        "load_max": 1,
        "load_mean": 1.0,
        "idle_reviewers": 0,
    }


def test_the_fairest_gives_up_similarity_for_the_worst_paper() -> None:
    given = problem([[1.0, 0.5], [0.5, 0.1]], 1, [1, 1])
    assert most_similar(given).statistics()["lowest_score"] == 0.1
    assert fairest(given).statistics()["lowest_score"] == 0.5
    assert fairest(given).statistics()["total"] < most_similar(given).statistics()["total"]


@pytest.mark.parametrize("seed", range(25))
def test_both_are_the_best_of_all_that_is_possible(seed: int) -> None:
    source = random.Random(seed)
    people, papers = source.randrange(2, 5), source.randrange(1, 4)
    per_paper = source.randrange(1, people)
    scores = [[source.randrange(-4, 9) / 8 for _ in range(papers)] for _ in range(people)]
    given = problem(scores, per_paper, [source.randrange(papers + 1) for _ in range(people)])
    possible = every_assignment(given)
    if not possible:
        for solve in (most_similar, fairest):
            with pytest.raises(UsageError):
                solve(given)
        return
    totals = [float((given.scores * one).sum()) for one in possible]
    lowest = [float(given.scores[one].min()) for one in possible]
    best, fair = most_similar(given), fairest(given)
    for made in (best, fair):
        assert any((made.chosen == one).all() for one in possible)
    assert best.statistics()["total"] == pytest.approx(max(totals), abs=1e-9)
    assert fair.statistics()["lowest_score"] == max(lowest)
    among = [t for t, low in zip(totals, lowest, strict=True) if low == max(lowest)]
    assert fair.statistics()["total"] == pytest.approx(max(among), abs=1e-9)


@pytest.mark.parametrize(("per_paper", "capacity"), [(3, [9, 9]), (1, [1, 0]), (2, [2, 1])])
def test_what_the_capacities_forbid(per_paper: int, capacity: list[int]) -> None:
    given = problem([[1.0, 0.5], [0.5, 0.1]], per_paper, capacity)
    for solve in (most_similar, fairest):
        with pytest.raises(UsageError) as caught:
            solve(given)
        assert caught.value.code == "usage.capacity"


def test_capacities() -> None:
    assert capacities(["a", "b"], 3, {"b": 0}) == (3, 0)
    with pytest.raises(UsageError, match="no reviewer 'c'"):
        capacities(["a"], 3, {"c": 1})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a;1\n", 1),
        ("a,1\na,2\n", 2),
        ("a,-1\n", 1),
        ("a,1.5\n", 1),
        ("reviewer_id,papers\na\n", 2),
    ],
)
def test_capacities_that_are_malformed(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_capacities(path)
    assert caught.value.where is not None
    assert caught.value.where.line == line


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assign")
    sealed(write_compact(folder / "root"), folder, "overlap", "failing", key=None)
    return folder / "out"


def arguments(bundle: Path, out: Path, *more: str) -> list[str]:
    base = ["assign", str(bundle), "--allow-unsigned", "--out", str(out), "--max-load", "4"]
    return [*base, *more]


def test_from_a_bundle(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made"
    limits = tmp_path / "capacities.csv"
    limits.write_text("reviewer_id,papers\nr1,1\n")
    chosen = ("--method", "overlap", "--per-paper", "2", "--capacities", str(limits))
    assert main(arguments(bundle, out, *chosen)) == EXIT_OK
    assert "fairest" in capsys.readouterr().out
    statistics = json.loads((out / "statistics.json").read_text())
    assert statistics["method"] == "overlap"
    for name in ("most-similar", "fairest"):
        lines = (out / f"{name}.csv").read_text().splitlines()
        assert lines[0] == "paper_id,reviewer_id,score"
        rows = [line.split(",") for line in lines[1:]]
        assert len(rows) == 12  # six submissions, two reviewers each
        assert len({(paper, who) for paper, who, _ in rows}) == 12
        assert sum(who == "r1" for _, who, _ in rows) <= 1
        assert statistics[name]["total"] == pytest.approx(sum(float(s) for *_, s in rows))
    best, fair = statistics["most-similar"], statistics["fairest"]
    assert best["total"] >= fair["total"]
    assert fair["lowest_score"] >= best["lowest_score"]
    again = tmp_path / "again"
    assert main(arguments(bundle / "bundle.tar", again, *chosen)) == EXIT_OK
    assert (again / "fairest.csv").read_bytes() == (out / "fairest.csv").read_bytes()


def test_names_are_for_the_organiser_alone(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "names.csv"
    data = ("--data-root", str(bundle.parent / "root"), "--names", str(names))
    chosen = ("--method", "overlap", "--per-paper", "2", *data)
    assert main(arguments(bundle, tmp_path / "made", *chosen)) == EXIT_OK
    assert names.stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(names.read_text().splitlines()))
    assert {row["own_id"] for row in rows if row["kind"] == "reviewer"} == set(PEOPLE)
    assert {row["own_id"] for row in rows if row["kind"] == "submission"} == set(SUBMISSIONS)
    # Joined by ids: the scores are the overlaps of these very people and papers.
    with (bundle / "bundle/scores/overlap/toy-1.csv").open(newline="") as stream:
        rated = {(r["reviewer_id"], r["paper_id"]): r["rating"] for r in csv.DictReader(stream)}
    own = {row["id"]: row["own_id"] for row in rows}
    assert {(own[who], own[paper]): float(rating) for (who, paper), rating in rated.items()} == {
        (who, paper): float(text) for who, one in RATINGS.items() for paper, text in one.items()
    }
    told = capsys.readouterr()
    written = [*(tmp_path / "made").iterdir()]
    for text in (told.out, told.err, *(path.read_text() for path in written)):
        assert not any(person in text for person in PEOPLE)
    before = names.read_bytes()
    for more in ((), ("--force",)):  # names are never replaced
        out = tmp_path / "other"
        assert main(arguments(bundle, out, *chosen, *more)) == UsageError.exit_code
    assert names.read_bytes() == before


def test_what_is_there_is_replaced_by_force_alone(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made"
    out.mkdir()
    chosen = ("--method", "overlap", "--per-paper", "2")
    assert main(arguments(bundle, out, *chosen)) == EXIT_OK  # an empty folder holds nothing
    (out / "fairest.csv").write_text("mine")
    assert main(arguments(bundle, out, *chosen)) == UsageError.exit_code
    assert "[usage.occupied]" in capsys.readouterr().err
    assert (out / "fairest.csv").read_text() == "mine"
    assert main(arguments(bundle, out, *chosen, "--force")) == EXIT_OK
    assert (out / "fairest.csv").read_text() != "mine"


def test_names_that_would_travel_with_the_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--method", "overlap", "--data-root", str(bundle.parent / "root"))
    for place in (bundle / "names.csv", bundle / "bundle" / "scores" / "names.csv"):
        for given in (bundle, bundle / "bundle.tar"):
            told = (*data, "--names", str(place))
            assert main(arguments(given, tmp_path / "out", *told)) == UsageError.exit_code
            assert "[usage.names-in-bundle]" in capsys.readouterr().err
        assert not place.exists()


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--method", "overlp"), "usage.unknown-method"),
        (("--method", "overlap", "--dataset", "toy-9"), "usage.unknown-dataset"),
        (("--method", "overlap", "--data-root", "/nonexistent"), "data.missing"),
        (("--method", "theirs"), "usage.partial-scores"),
        (("--method", "failing"), "usage.partial-scores"),
        (("--method", "overlap", "--names", "/nonexistent/names.csv"), "usage.names-data"),
        (("--method", "overlap", "--per-paper", "0"), "usage.out-of-bounds"),
        (("--method", "overlap", "--per-paper", "3"), "usage.capacity"),
        (("--method", "overlap", "--capacities", "/nonexistent"), "usage.capacities"),
    ],
)
def test_what_cannot_be_assigned(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    code: str,
) -> None:
    exit_code = DataError.exit_code if code.startswith("data.") else UsageError.exit_code
    assert main(arguments(bundle, tmp_path / "out", *more)) == exit_code
    assert f"[{code}]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
