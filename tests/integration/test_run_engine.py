"""The command as a user runs it, on a real engine: the shipped manifests, signals, kill -9."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine
from runner.engine.lease import RUN

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.engine
#: Figures of the specification for all 300 and for the 200 held-out queries.
OKAPI = {
    "all": {
        "ndcg_at_10": 0.651893, "recall_at_1": 0.507500, "recall_at_5": 0.728444,
        "recall_at_10": 0.774000, "mrr_at_10": 0.618615, "map_at_10": 0.606975,
    },
    "heldout": {"ndcg_at_10": 0.665236, "recall_at_10": 0.801833, "mrr_at_10": 0.624006},
}  # fmt: skip
BM25S = {
    "all": {
        "ndcg_at_10": 0.664617, "recall_at_1": 0.524833, "recall_at_5": 0.720944,
        "recall_at_10": 0.781611, "mrr_at_10": 0.633999, "map_at_10": 0.621216,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> dict[str, str]:
    """A key of our own; the engine is the one that DOCKER_HOST leads to."""
    folder = tmp_path_factory.mktemp("keys")
    made = {**os.environ, "SEALBENCH_KEYS": str(folder)}
    sealbench(made, "images", "build", timeout=600)
    sealbench(made, "keys", "generate")
    return made


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "runner.cli", *map(str, arguments)]


def sealbench(env: dict[str, str], *arguments: object, code: int = 0, timeout: float = 300) -> str:
    done = subprocess.run(
        command(*arguments), cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        timeout=timeout,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def leftovers(engine: Engine, run_id: str) -> list[str]:
    return [box.name for box in engine.containers({RUN: ""}) if box.labels.get(RUN) == run_id]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def quickstart(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quickstart") / "out"
    told = events(sealbench(env, "run", "manifests/quickstart.yaml", "--out", out, "--json"))
    assert told[-1]["event"] == "result"
    assert told[-1]["verify"]["recomputed"]["holds"] is True
    finished = [event for event in told if event["event"] == "unit_finished"]
    assert [event["outcome"] for event in finished] == ["ok"] * 4
    return out


def test_the_quickstart_is_sealed_and_verifies_anew(env: dict[str, str], quickstart: Path) -> None:
    options = ["--protocol", "manifests/benchmarks/quickstart-v1.protocol.json"]
    options += ["--data-root", "manifests/data", "--require", "recomputed"]
    for bundle in (quickstart, quickstart / "bundle.tar"):
        assert "REFUSED" not in sealbench(env, "verify", bundle, *options)


def test_another_key_and_another_protocol_are_refused(
    env: dict[str, str], quickstart: Path, tmp_path: Path
) -> None:
    protocol = "manifests/benchmarks/quickstart-v1.protocol.json"
    other = {**env, "SEALBENCH_KEYS": str(tmp_path)}
    sealbench(other, "keys", "generate")
    sealbench(other, "verify", quickstart, "--protocol", protocol, code=11)
    sealbench(env, "verify", quickstart, "--protocol", "sha256:" + "0" * 64, code=11)


def test_a_bundle_tells_nothing_of_the_machine(quickstart: Path) -> None:
    """No hostname, user, home, checkout or output path, and nothing of the environment."""
    private = {socket.gethostname(), str(Path.home()), str(ROOT), str(quickstart)}
    private |= {f"/{getpass.getuser()}/", os.environ.get("DOCKER_HOST", "unix://none")}
    private = {text for text in private if len(text) > 3}
    for path in [quickstart / "bundle.tar", *(quickstart / "bundle.sigs").rglob("*")]:
        data = path.read_bytes() if path.is_file() else b""
        for text in private:
            assert text.encode() not in data, f"{text} in {path.name}"


def test_evidence_was_measured(quickstart: Path) -> None:
    lines = (quickstart / "bundle" / "outcomes.jsonl").read_text("utf-8").splitlines()
    for record in map(json.loads, lines):
        evidence = record["evidence"]
        assert evidence["death_proven"] is True
        assert evidence["exit_code"] == 0
        for name in ("peak_memory_bytes", "cpu_ns", "wall_ns", "oom_events"):
            assert (evidence[name] is None) == (name in evidence["unmeasured"]), name


def test_every_way_to_fail_is_told_apart(
    env: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = "manifests/quickstart-failures.yaml"
    told = events(sealbench(env, "run", manifest, "--out", out, "--json"))
    outcomes = {e["method"]: e["outcome"] for e in told if e["event"] == "unit_finished"}
    assert outcomes == {
        "honest": "ok",
        "late": "timeout",
        "greedy": "out_of_memory",
        "crashing": "crashed",
        "lying": "invalid_output",
        "flooding": "output_limit",
        "forking": "crashed",
    }
    results = told[-1]["results"]
    scored = {row["method"] for row in results["aggregate"] if row["mean_score"] is not None}
    assert scored == {"honest"}
    assert leftovers(engine, told[-1]["results"]["run_id"]) == []


def start(env: dict[str, str], out: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the failures' run and return it when its second method, the late one, runs."""
    process = subprocess.Popen(
        command("run", "manifests/quickstart-failures.yaml", "--out", out, "--json"),
        cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    run_id = ""
    for line in process.stdout:
        event = json.loads(line)
        run_id = event.get("run_id", run_id)
        if event["event"] == "unit_tick" and event["method"] == "late":
            return process, run_id
    raise AssertionError("the late method never ran")


def test_a_signal_stops_kills_and_seals_what_there_is(
    env: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process, run_id = start(env, out)
    process.send_signal(signal.SIGTERM)
    told = events(process.communicate(timeout=60)[0])
    assert process.returncode == 21
    assert leftovers(engine, run_id) == []
    lines = (out / "bundle" / "outcomes.jsonl").read_text("utf-8").splitlines()
    outcomes = [json.loads(line)["outcome"] for line in lines]
    assert outcomes == ["ok", "cancelled", *["not_started"] * 5]
    assert told[-1]["verify"]["faults"] == []


def test_after_kill_9_the_same_command_sweeps_and_resumes(
    env: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process, run_id = start(env, out)
    process.kill()
    process.communicate(timeout=30)
    assert len(leftovers(engine, run_id)) == 1
    assert not (out / "bundle").exists()
    time.sleep(0.1)
    manifest = "manifests/quickstart-failures.yaml"
    told = events(sealbench(env, "run", manifest, "--out", out, "--json"))
    begun = [event["method"] for event in told if event["event"] == "unit_started"]
    assert "honest" not in begun
    assert begun[0] == "late"
    assert leftovers(engine, run_id) == []
    assert told[-1]["verify"]["faults"] == []
    assert len((out / "bundle" / "outcomes.jsonl").read_text("utf-8").splitlines()) == 7


def test_two_runs_cannot_share_a_folder(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process, _ = start(env, out)
    try:
        manifest = "manifests/quickstart-failures.yaml"
        error = json.loads(
            sealbench(env, "run", manifest, "--out", out, "--json", code=9).splitlines()[-1]
        )
        assert error["code"] == "storage.in-use"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_scifact_reaches_the_reference_figures(
    env: dict[str, str], scifact_root: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = "manifests/scifact-lexical.yaml"
    options = ["--data-root", scifact_root, "--out", out, "--json"]
    told = events(sealbench(env, "run", manifest, *options))
    found = {
        (row["method"], row["split"], row["metric"]): row["mean_score"]
        for row in told[-1]["results"]["aggregate"]
    }
    for method, figures in (("bm25-okapi", OKAPI), ("bm25s", BM25S)):
        for split, metrics in figures.items():
            for metric, value in metrics.items():
                assert found[method, split, metric] == pytest.approx(value, abs=5e-7), metric
