"""The runner's own image: built on our base, it seals the same as the runner outside."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.rows.form import RowsDigest
from tests.conftest import ENGINE_REQUIRED
from tests.private_engine import NoPrivateEngineError, private_engine
from tools.container import build_command, clean_wheels, download_command, own_base

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
PROTOCOL = ROOT / "manifests" / "benchmarks" / "quickstart-v1.protocol.json"
USER = 65534
MANIFEST = """\
schema: sealbench/run/v1
name: inside-and-outside
protocol: protocol.json
splits: [all]
limits: {wall: 60s, memory: 256MiB, output: 16MiB}
methods:
  - {name: honest, image: failures}
  - {name: crashing, image: failures, expect: crashed}
"""


def must(command: Sequence[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_run_inside_gives_the_same_bundle_as_one_outside(tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker command, which builds from a Dockerfile")
    try:
        with private_engine() as address:
            compare(tmp_path, address)
    except NoPrivateEngineError as error:
        if ENGINE_REQUIRED:
            pytest.fail(str(error))
        pytest.skip(str(error))


def compare(folder: Path, address: str) -> None:
    env = {**os.environ, "DOCKER_HOST": address, "DOCKER_BUILDKIT": "0"}
    runner = [sys.executable, "-m", "runner.cli"]
    must([*runner, "images", "build", "base", "failures"], env)
    clean_wheels(ROOT)
    must(download_command(sys.executable, ROOT), env)
    built = must([*build_command(own_base(ROOT), ROOT, tag=None), "--quiet"], env)
    image = built.strip().splitlines()[-1]
    work = prepared(folder)
    outside, inside = work / "outside", work / "inside"
    options = ["--unsigned", "--progress", "quiet"]
    data = str(ROOT / "manifests" / "data")
    must([*runner, "run", str(work / "run.yaml"), "--data-root", data, "--out", str(outside),
          *options], env)  # fmt: skip
    socket = Path(address.removeprefix("unix://"))
    must(
        [
            "docker", "run", "--rm", "--network", "none", "--user", f"{USER}:{USER}",
            "--group-add", str(socket.stat().st_gid),
            "--volume", f"{socket}:/var/run/docker.sock", "--volume", f"{work}:{work}",
            "--workdir", str(work), image,
            "run", "run.yaml", "--data-root", "/opt/sealbench/manifests/data",
            "--out", str(inside), *options,
        ],
        env,
    )  # fmt: skip
    assert owners(inside) == {USER}
    one, other = view(outside / "bundle"), view(inside / "bundle")
    assert one.keys() == other.keys()
    assert {name for name in one if one[name] != other[name]} == set()


def prepared(folder: Path) -> Path:
    """The work folder: its path is the same inside, and its owner is not root."""
    work = folder / "work"
    work.mkdir()
    (work / "run.yaml").write_text(MANIFEST)
    shutil.copy(PROTOCOL, work / "protocol.json")
    for place in (work, *work.parents):
        if place.stat().st_uid == os.geteuid() and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)
    os.chown(work, USER, USER)
    return work


def owners(folder: Path) -> set[int]:
    return {path.stat().st_uid for path in (folder, *folder.rglob("*"))}


def view(bundle: Path) -> dict[str, Any]:
    """What a bundle says apart from host and times, by file."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
        name = str(path.relative_to(bundle))
        if name in ("host.json", "manifest.json", "ro-crate-metadata.json"):
            found[name] = None
        elif name.startswith("rows/"):
            digest = RowsDigest("row-retrieval")
            digest.add(path.read_bytes())
            found[name] = digest.hexdigest()
        elif name == "outcomes.jsonl":
            found[name] = [outcome(line) for line in path.read_text().splitlines()]
        elif name == "results.json":
            found[name] = results(json.loads(timeless(path.read_text())))
        elif name == "claims.json":
            found[name] = claims(json.loads(path.read_bytes()))
        elif name.startswith("per-query/"):
            found[name] = without_latency(path.read_text())
        else:
            found[name] = path.read_bytes()
    return found


def timeless(text: str) -> str:
    """Reasons tell how long a unit took."""
    return re.sub(r"after [0-9.]+ s", "after a while", text)


def claims(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out how busy the host is, and of what runs all but its files: inside, no repository
    names the source, and the files are the same."""
    document["executable"] = document["executable"]["files_digest"]
    del document["timing"]
    lines = document["boundary"]["does_not_show"]
    document["boundary"]["does_not_show"] = [line for line in lines if "source" not in line]
    return document


def without_latency(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    for row in rows:
        del row["latency_ms"]
    return rows


def outcome(line: str) -> tuple[Any, ...]:
    record = json.loads(timeless(line))
    names = ("unit_id", "outcome", "reason", "image", "limits", "rows_expected", "rows_valid")
    return tuple(record[name] for name in names)


def results(document: dict[str, Any]) -> dict[str, Any]:
    for summary in document.get("summaries", ()):
        summary.pop("latency_ms", None)
    return document
