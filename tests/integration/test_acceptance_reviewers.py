"""The reviewer benchmark's shipped manifests on the real data: figures, and nobody's id anywhere.

Each run is made once for all tests here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shipped import MANIFESTS, PROTOCOLS, User, means, outcomes, shipped, written

pytestmark = pytest.mark.engine

EXACT = {
    ("tpms", "wkt_loss"): 0.281058,
    ("tpms", "easy_accuracy"): 0.800383,
    ("tpms", "hard_accuracy"): 0.621823,
    ("elmo", "wkt_loss"): 0.344692,
    ("specter", "wkt_loss"): 0.268889,
    ("constant", "wkt_loss"): 0.5,
    ("constant", "easy_accuracy"): 0.0,
    ("constant", "hard_accuracy"): 0.0,
}
#: A vectoriser is given to four digits. An encoder's vectors differ in their last bits by CPU.
ROUGH = {"tfidf": (0.2962, 5e-5), "minilm": (0.2113, 2e-3)}
EXECUTED = ("tpms", "tfidf", "bm25", "minilm", "constant", "random")
RELEASED = ("elmo", "specter", "tpms-released")
WITHOUT_WEIGHTS = ("specter2", "specter-mounted", "scincl", "specter-mfr")
VERSIONS = 10
#: Whole profiles of 20 papers over five versions, by what is read of each paper.
REGIMES = {"t": 0.334538, "ta": 0.266130, "f": 0.236420}
LENGTHS = (1, 4, 8, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The whole manifest's run: its folder, and everything that was said meanwhile."""

    out: Path
    said: str


@pytest.fixture(scope="module")
def whole(user: User, reviewer_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """`manifests/reviewer-gold.yaml`, with progress line by line."""
    out = tmp_path_factory.mktemp("reviewers") / "out"
    manifest = MANIFESTS / "reviewer-gold.yaml"
    done = user.sealbench(
        "run", manifest, "--data-root", reviewer_root, "--out", out, "--progress", "plain",
        timeout=1_200,
    )  # fmt: skip
    return Whole(out=out, said=done.stdout + done.stderr)


def test_every_version_of_every_method_has_its_outcome(
    whole: Whole, user: User, reviewer_root: Path
) -> None:
    said = user.verified(whole.out, "reviewer-gold-v1", reviewer_root)
    assert re.search(r"^recomputed +yes ", said, re.MULTILINE)
    found: dict[str, list[str]] = {}
    for record in outcomes(whole.out):
        found.setdefault(record["method"], []).append(record["outcome"])
        if record["method"] in WITHOUT_WEIGHTS:
            assert "not on this host" in record["reason"]
    ended = [("ok", EXECUTED + RELEASED), ("not_started", WITHOUT_WEIGHTS)]
    assert found == {name: [word] * VERSIONS for word, names in ended for name in names}


def test_the_figures_of_the_specification_are_reached(whole: Whole) -> None:
    found = means(whole.out)
    for key, value in EXACT.items():
        assert found[key] == pytest.approx(value, abs=1e-6), key
    for method, (value, tolerance) in ROUGH.items():
        assert found[method, "wkt_loss"] == pytest.approx(value, abs=tolerance), method
    assert {found[name, "wkt_loss"] for name in WITHOUT_WEIGHTS} == {None}


def people_of(root: Path) -> re.Pattern[bytes]:
    """A pattern for ids of people as words of their own, not inside a digest or a number."""
    lines = (root / "reviewer-gold" / "evaluations.csv").read_bytes().splitlines()[1:]
    ids = [line.split(b"\t")[0] for line in lines]
    assert len(set(ids)) == 58
    return re.compile(rb"(?<![0-9A-Za-z.])(?:" + b"|".join(ids) + rb")(?![0-9A-Za-z])")


def test_nobody_is_named_in_what_is_made_of_it(
    whole: Whole, user: User, reviewer_root: Path, tmp_path: Path
) -> None:
    """Bundle, tar, signatures, logs, progress, page, assignments, registry and leaderboard."""
    people = people_of(reviewer_root)
    protocol = ("--protocol", PROTOCOLS / "reviewer-gold-v1.protocol.json")
    registry = ("--registry", tmp_path / "registry")
    said = [whole.said]
    for arguments in (
        ("report", whole.out, "--baseline", "tpms", "--out", tmp_path / "report.html"),
        (
            "assign", whole.out, "--method", "tpms", "--per-paper", 3, "--max-load", 30,
            "--out", tmp_path / "assignment",
        ),
        ("registry", "add", whole.out, *protocol, "--data-root", reviewer_root, *registry),
        ("leaderboard", *registry, "--out", tmp_path / "leaderboard"),
    ):  # fmt: skip
        done = user.sealbench(*arguments)
        said.append(done.stdout + done.stderr)
    assert not people.search("".join(said).encode())
    made = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"report.html", "most-similar.csv", "fairest.csv", "bundle.tar", "entry.json"} <= made
    assert {"leaderboard.csv", "leaderboard.json"} <= made
    files = [p for folder in (whole.out, tmp_path) for p in folder.rglob("*") if p.is_file()]
    assert sum(path.name == "part-00000.jsonl" for path in files) == VERSIONS * len(
        EXECUTED + RELEASED
    )
    for path in files:
        assert not people.search(path.read_bytes()), path


@pytest.fixture(scope="module")
def curve(user: User, fulltext_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`manifests/reviewer-gold-profile-length.yaml`, six of its sixty points: four lengths of the
    regime `ta`, and whole profiles of the other two."""
    folder = tmp_path_factory.mktemp("curve")
    document = shipped("reviewer-gold-profile-length")
    (study,) = document["methods"]
    assert study["matrix"] == {"regime": list(REGIMES), "profile_length": list(range(1, 21))}
    others = {"regime": ["t", "f"], "profile_length": [20]}
    whole = {**study, "name": "whole", "method": "tpms", "matrix": others}
    study["matrix"] = {"regime": ["ta"], "profile_length": list(LENGTHS)}
    document["methods"] = [study, whole]
    user.sealbench(
        "run", written(document, folder), "--data-root", fulltext_root, "--out", folder / "out",
        "--progress", "quiet",
    )  # fmt: skip
    return folder / "out"


def test_losses_by_regime_and_the_plateau_after_eight_papers(
    curve: Path, user: User, tmp_path: Path
) -> None:
    assert {record["outcome"] for record in outcomes(curve)} == {"ok"}
    losses = {key[0]: value for key, value in means(curve).items() if key[1] == "wkt_loss"}
    wholes = {"t": losses["whole.t.20"], "ta": losses["tpms.ta.20"], "f": losses["whole.f.20"]}
    assert wholes == pytest.approx(REGIMES, abs=1e-6)
    one, four, eight, twenty = [losses[f"tpms.ta.{length}"] or 9.0 for length in LENGTHS]
    assert one > four > eight, losses
    # What the first eight papers bring, the next twelve do not bring a tenth of.
    assert abs(eight - twenty) < (one - eight) / 10, losses
    page = tmp_path / "report.html"
    user.sealbench("report", curve, "--out", page)
    assert "loss (weighted Kendall) by profile length" in page.read_text()
