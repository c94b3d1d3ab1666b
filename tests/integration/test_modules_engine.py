"""Modules of their authors' own on a real engine: an honest one, and some that are not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine
from runner.errors import EXIT_OK

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parent.parent.parent
PROTOCOL = ROOT / "manifests" / "benchmarks" / "homework-v1.protocol.json"
EXITS = "import sys\ndef score(left, right):\n    sys.exit()\n"
ENDS = "import os\ndef score(left, right):\n    print('partly', flush=True)\n    os._exit(0)\n"
ENDLESS = "def score(left, right):\n    while True:\n        pass\n"
#: Tries once what no method may do, and prints what came of it.
PRIES = """
import json, os, socket
from pathlib import Path

def trying(action):
    try:
        return repr(action())
    except OSError as error:
        return error.strerror

def words(folder):
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    text = " ".join(path.read_text() for path in files).lower()
    return [word for word in ("label", "relevance", "positive", "group", "validation", ".java")
            if word in text.replace("public", "")]

def look():
    return {
        "edit": trying(lambda: open("/module/method.py", "w")),
        "add": trying(lambda: open("/module/more.py", "w")),
        "remove": trying(lambda: os.unlink("/module/method.py")),
        "mode": trying(lambda: os.chmod("/module/method.py", 0o777)),
        "module": sorted(os.listdir("/module")),
        "inputs": sorted(os.listdir("/in")),
        "words": words("/in"),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "uid": os.getuid() != 0,
    }

seen = []

def score(left, right):
    if not seen:
        seen.append(look())
        print(json.dumps(seen[0]))
    return 0.5
"""


def run(manifest: Path, out: Path, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner.cli"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home)}
    subprocess.run([*command, "images", "build", "code"], env=env, check=True, cwd=ROOT)
    return subprocess.run(
        [*command, "run", str(manifest), "--data-root", str(ROOT / "manifests" / "data"), "--out",
         str(out), "--unsigned", "--progress", "quiet"],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_modules_run_and_one_that_fails_costs_nobody_else_anything(
    engine: Engine, tmp_path: Path
) -> None:
    shutil.copy(PROTOCOL, tmp_path / "protocol.json")
    shutil.copy(ROOT / "examples" / "module" / "token_jaccard.py", tmp_path / "honest.py")
    sources = {"exits": EXITS, "ends": ENDS, "endless": ENDLESS, "pries": PRIES}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    lines = [
        "schema: sealbench/run/v1",
        "name: modules",
        "protocol: protocol.json",
        "splits: [test]",
        "limits: {wall: 1m, grace: 200ms, memory: 256MiB, cpus: 1, pids: 16}",
        "methods:",
    ]
    more = {"ends": "expect: invalid_output", "endless": "limits: {wall: 1s}, expect: timeout"}
    for name in (*sources, "honest"):
        extra = f", {more[name]}" if name in more else ""
        lines += [f"  - {{name: {name}, image: code, method: custom, module: {name}.py{extra}}}"]
    (tmp_path / "run.yaml").write_text("\n".join(lines) + "\n")
    done = run(tmp_path / "run.yaml", tmp_path / "out", tmp_path / "home")
    assert done.returncode == EXIT_OK, done.stdout + done.stderr  # all as expected
    assert "recomputed: yes" in done.stdout

    bundle = tmp_path / "out" / "bundle"
    records = map(json.loads, (bundle / "outcomes.jsonl").read_text().splitlines())
    outcomes = {(record["method"], record["dataset"][9:]): record["outcome"] for record in records}
    assert outcomes == {
        ("exits", "pair"): "ok", ("exits", "retrieval"): "ok",
        ("ends", "pair"): "invalid_output", ("ends", "retrieval"): "invalid_output",
        ("endless", "pair"): "timeout", ("endless", "retrieval"): "not_started",
        ("pries", "pair"): "ok", ("pries", "retrieval"): "ok",
        ("honest", "pair"): "ok", ("honest", "retrieval"): "ok",
    }  # fmt: skip
    log = bundle / "logs" / "pries" / "homework-pair.stdout.log"
    assert json.loads(log.read_text()) == {
        "edit": "Read-only file system",
        "add": "Read-only file system",
        "remove": "Read-only file system",
        "mode": "Read-only file system",
        "module": ["method.py"],
        "inputs": ["pairs.jsonl", "sources.jsonl", "task.json"],
        "words": [],
        "interfaces": ["lo"],
        "uid": True,
    }
    rows = (bundle / "rows/exits/homework-pair/part-00000.jsonl").read_text().splitlines()
    assert {json.loads(row)["error"] for row in rows} == {"SystemExit"}
    results: dict[str, Any] = json.loads((bundle / "results.json").read_bytes())
    pairs = {
        row["method"]: (row["mean_score"] is not None, row["eligible"], row["rank"])
        for row in results["aggregate"]
        if row["metric"] == "auroc"
    }
    failed = (False, False, None)
    assert pairs == {
        "exits": failed, "ends": failed, "endless": failed, "pries": (True, True, 2),
        "honest": (True, True, 1),
    }  # fmt: skip
