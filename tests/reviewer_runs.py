"""Whole runs over a made-up reviewer benchmark, small enough to work its figures out by hand.

Three people, three submissions without a common word. Everybody rates two of them:

    A   parsing 5     robots 1      gap 4
    B   auctions 4.5  parsing 1.5   gap 3
    C   robots 5      auctions 4    gap 1

In the first version each profile is about what its owner rates higher; in the second A's is about
robots. A method that sees words has loss 0, then 4/8.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.unit.reviewer_files import evaluations
from tests.unit.test_expertise_task import frozen

ROOT = Path(__file__).resolve().parent.parent
REVISION = "ab" * 20
A, B, C = "900000001", "900000002", "900000003"
RATINGS = {
    A: {"s1": "5.0", "s3": "1.0"},
    B: {"s2": "4.5", "s1": "1.5"},
    C: {"s3": "5.0", "s2": "4.0"},
}
TEXTS = {
    "s1": ("Parsing trees", "grammar charts derive sentences"),
    "s2": ("Auctions clear", "bidders price goods truthfully"),
    "s3": ("Robots walk", "legged locomotion balances terrain"),
    "p1": ("Chart grammar", "trees parsing sentences quickly"),
    "p2": ("Truthful bidders", "auctions price goods"),
    "p3": ("Legged robots", "walk locomotion terrain"),
}
PROFILES = {
    "v_1": {A: ["p1"], B: ["p2"], C: ["p3"]},
    "v_2": {A: ["p3"], B: ["p2"], C: ["p3"]},
}


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder with the benchmark's data and its frozen protocol (datasets toy-1 and toy-2)."""

    folder: Path

    def run(self, *methods: str, memory: str = "512MiB", options: tuple[str, ...] = ()) -> Path:
        """Run methods, given as lines of a manifest, with the command; return the bundle."""
        lines = ["schema: sealbench/run/v1", "name: toy", "protocol: p.json", "splits: [all]"]
        lines += [f"limits: {{memory: {memory}, cpus: 1}}", "methods:", *methods]
        (self.folder / "run.yaml").write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "runner.cli", "run", str(self.folder / "run.yaml")]
        command += ["--data-root", str(self.folder / "root"), "--out", str(self.folder / "out")]
        done = subprocess.run(
            [*command, "--unsigned", "--json", *options],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        return self.folder / "out" / "bundle"


def bench_of(folder: Path) -> Bench:
    """Write the benchmark below a folder."""
    data = folder / "root" / "toy"
    data.mkdir(parents=True)
    (data / "evaluations.csv").write_text(evaluations(RATINGS, width=2))
    papers = [
        {"id": ident, "title": title, "abstract": abstract, "year": 2022}
        for ident, (title, abstract) in TEXTS.items()
    ]
    (data / "papers.jsonl").write_text("".join(json.dumps(paper) + "\n" for paper in papers))
    sets = {"submissions": ["s1", "s2", "s3"], "profiles": PROFILES}
    (data / "datasets.json").write_text(json.dumps(sets))
    (folder / "p.json").write_bytes(frozen(folder / "root").raw)
    return Bench(folder)


def outcomes(bundle: Path) -> dict[str, set[str]]:
    """Return method -> its outcomes over both datasets."""
    found: dict[str, set[str]] = {}
    for line in (bundle / "outcomes.jsonl").read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record["method"], set()).add(record["outcome"])
    return found


def means(bundle: Path, metric: str) -> dict[str, float]:
    """Return method -> its mean over both datasets."""
    rows = json.loads((bundle / "results.json").read_bytes())["aggregate"]
    return {row["method"]: row["mean_score"] for row in rows if row["metric"] == metric}


def rated(bundle: Path, method: str, dataset: str) -> list[tuple[str, float, float]]:
    """Return (reviewer, rating, score) of every rated pair, as the score file has them."""
    with (bundle / "scores" / method / f"{dataset}.csv").open(newline="") as stream:
        return [
            (row["reviewer_id"], float(row["rating"]), float(row["score"]))
            for row in csv.DictReader(stream)
        ]
