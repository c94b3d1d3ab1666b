"""The methods that fail on purpose, run outside a container with bounds of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from failing.lying import LIES

from runner.schemas import is_valid
from tests.unit.test_sdk import SDK_FOLDER, write_inputs

FAILURES_FOLDER = Path(__file__).resolve().parents[2] / "images" / "failures"


def run(
    tmp_path: Path, name: str, *, queries: int = 8, **config: Any
) -> tuple[int, list[bytes], str]:
    """Run a method; return its exit code, its lines and its stderr."""
    write_inputs(tmp_path / "in", queries=queries, config=config)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", f"failing.{name}"],
        env={
            "PYTHONPATH": f"{SDK_FOLDER}:{FAILURES_FOLDER}",
            "inputDataset": str(tmp_path / "in"),
            "outputDir": str(tmp_path / "out"),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    rows = tmp_path / "out/rows.jsonl"
    lines = rows.read_bytes().splitlines(keepends=True) if rows.exists() else []
    return done.returncode, lines, done.stderr


def valid(lines: list[bytes]) -> int:
    return sum(is_valid("row-retrieval", json.loads(line)) for line in lines)


def test_honest_answers_everything(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path, "honest")
    assert (code, len(lines), valid(lines)) == (0, 8, 8)


def test_crashing_answers_half_and_exits_with_three(tmp_path: Path) -> None:
    code, lines, err = run(tmp_path, "crashing")
    assert (code, len(lines), valid(lines)) == (3, 4, 4)
    assert "giving up" in err


def test_late_answers_half_and_sleeps(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path, "late", sleep_s=0.1)
    assert (code, valid(lines)) == (0, 4)


def test_greedy_and_forking_and_flooding_are_bounded(tmp_path: Path) -> None:
    assert run(tmp_path / "a", "greedy", mib=16)[0] == 0
    assert run(tmp_path / "b", "forking", processes=3, sleep_s=0.2)[0] == 0
    assert run(tmp_path / "c", "flooding", mib=1, sleep_s=0)[0] == 0
    sizes = [path.stat().st_size for path in (tmp_path / "c/out/artifacts").iterdir()]
    assert sizes == [256 << 10] * 4


@pytest.mark.parametrize("lie", LIES)
def test_one_lie_is_one_bad_row_after_honest_ones(tmp_path: Path, lie: str) -> None:
    code, lines, _ = run(tmp_path, "lying", lie=lie)
    assert code == 0
    assert valid(lines[:7]) == 7
    assert len(lines) == (9 if lie == "twice" else 8)
    assert lines[-1].endswith(b"\n") == (lie != "truncated")


def test_all_lies_fit_into_few_queries(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path / "many", "lying", queries=10, lie="all")
    assert (code, len(lines)) == (0, 11)
    code, lines, _ = run(tmp_path / "few", "lying", queries=2, lie="all")
    assert (code, len(lines)) == (0, 2)
    assert not lines[-1].endswith(b"\n")
