"""The walk-through as it stands in docs, and the reference figures on IR-Plag, on a real engine."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs" / "walkthrough-plagiarism.md"
FOREIGN = ("WALK", "SEALBENCH_KEYS", "SEALBENCH_KEY_PASSPHRASE", "XDG_CONFIG_HOME")


def environment(home: Path) -> dict[str, str]:
    """Somebody with nothing of their own, and `sealbench` on the path."""
    tools = home / "bin"
    tools.mkdir(parents=True)
    command = tools / "sealbench"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m runner.cli "$@"\n'
    )
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, "HOME": str(home), "PATH": f"{tools}:{os.environ['PATH']}"}


def test_the_walk_through_runs_as_it_stands(engine: Engine, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    walk = tmp_path / "walk"
    done = subprocess.run(
        ["sh", "-eu", "-c", "\n".join(blocks)],
        cwd=ROOT, env={**environment(tmp_path / "home"), "WALK": str(walk)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((walk / "reviewer/merged/bundle/results.json").read_bytes())
    ranks = {row["method"]: row["rank"] for row in results["aggregate"] if row["metric"] == "auroc"}
    assert set(ranks) == {"levenshtein", "lcs", "winnowing", "gst", "token-jaccard"}
    assert None not in ranks.values()
    assert all(entry["tie"] for entry in results["comparisons"])
    thresholds = {
        row["method"]: row["threshold"] for row in results["summaries"] if "threshold" in row
    }
    assert len(set(thresholds.values())) > 1  # each fitted on its own validation scores
    with (walk / "reviewer/leaderboard/leaderboard.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    assert {row["method"] for row in found} == set(ranks)
    assert len({row["protocol_id"] for row in found}) == 1
    assert "REFUSED" in done.stdout


#: The published figures; MAP depends on the order of tied documents in the fourth digit.
REFERENCE: dict[str, dict[str, float]] = {
    "levenshtein": {
        "average_precision": 0.862408, "auroc": 0.636284, "f1": 0.480652, "precision": 0.867647,
        "recall": 0.332394, "accuracy": 0.445652, "map": 0.721247, "mrr": 1.0,
        "ndcg_at_10": 0.990911,
    },
    "lcs": {
        "average_precision": 0.820365, "auroc": 0.549269, "f1": 0.564195, "precision": 0.787879,
        "recall": 0.439437, "accuracy": 0.476087, "map": 0.619905, "mrr": 1.0,
        "ndcg_at_10": 0.941849,
    },
    "winnowing": {
        "average_precision": 0.896466, "auroc": 0.701395, "f1": 0.297362, "precision": 1.0,
        "recall": 0.174648, "accuracy": 0.363043, "map": 0.867624, "mrr": 1.0,
        "ndcg_at_10": 1.0,
    },
}  # fmt: skip


def tied_range(path: Path) -> tuple[float, float]:
    """The least and the greatest MAP that any order of tied documents could give."""
    by_query: dict[str, list[tuple[float, int]]] = {}
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            pair = (-float(row["score"]), int(row["relevance"]))
            by_query.setdefault(row["query_id"], []).append(pair)
    ends = []
    for sign in (1, -1):
        precisions = []
        for pairs in by_query.values():
            ordered = [rel for _, rel in sorted(pairs, key=lambda pair: (pair[0], sign * pair[1]))]
            hits = [sum(ordered[: at + 1]) / (at + 1) for at, rel in enumerate(ordered) if rel]
            precisions.append(sum(hits) / len(hits))
        ends.append(sum(precisions) / len(precisions))
    return min(ends), max(ends)


def test_irplag_gives_the_published_figures(
    engine: Engine, irplag_root: Path, tmp_path: Path
) -> None:
    env = environment(tmp_path / "home")
    subprocess.run(["sealbench", "images", "build", "code"], env=env, check=True, cwd=ROOT)
    done = subprocess.run(
        [
            "sealbench", "run", "manifests/plagiarism.yaml", "--data-root", str(irplag_root),
            "--out", str(tmp_path / "out"), "--unsigned", "--progress", "quiet",
        ],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recomputed: yes" in done.stdout
    results: dict[str, Any] = json.loads((tmp_path / "out/bundle/results.json").read_bytes())
    scores = {(r["method"], r["metric"]): r["mean_score"] for r in results["aggregate"]}
    for method, figures in REFERENCE.items():
        artifact = tmp_path / "out/bundle/scores" / method / "irplag-retrieval.csv"
        low, high = tied_range(artifact)
        for metric, value in figures.items():
            if metric == "map":
                assert low - 1e-6 <= value <= high + 1e-6
                assert low - 1e-9 <= scores[method, metric] <= high + 1e-9
                assert scores[method, metric] == pytest.approx(value, abs=5e-4)
            else:
                assert scores[method, metric] == pytest.approx(value, abs=1e-6)
    summary = next(row for row in results["summaries"] if row["dataset"] == "irplag-pair")
    assert summary["base_rate"] == pytest.approx(0.771739, abs=1e-6)
    assert summary["all_positive_f1"] == pytest.approx(0.871166, abs=1e-6)
