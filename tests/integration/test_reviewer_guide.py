"""The reviewer's guide, as it stands in docs: another key, another folder, and no image at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ENGINE_REQUIRED
from tests.private_engine import NoPrivateEngineError, private_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs" / "reviewer.md"
MANIFEST = ROOT / "manifests" / "quickstart.yaml"
PROTOCOL = "manifests/benchmarks/quickstart-v1.protocol.json"
#: Settings of whoever runs the tests that would reach what must be clean.
FOREIGN = (
    "MANIFEST", "DATA_ROOT", "OUT", "KEY", "BUNDLE", "PROTOCOL", "TRUST", "ARCHIVES", "SUBMITTER",
    "IMAGES", "SEALBENCH_KEYS", "SEALBENCH_KEY_PASSPHRASE", "XDG_CONFIG_HOME", "MAKEFLAGS",
)  # fmt: skip


def commands() -> list[str]:
    """The guide's five commands."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    found: list[str] = blocks[1].strip().splitlines()
    assert len(found) == 5
    return found


def person(home: Path, address: str) -> dict[str, str]:
    """Somebody's environment: their own home, keys and engine."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, "HOME": str(home), "DOCKER_HOST": address, "ENGINE_INSTALL": "0"}


def sealbench(env: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", *arguments],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submit(home: Path, address: str) -> Path:
    """Build the image, run, and return the submitter's folder."""
    env = person(home, address)
    sealbench(env, "keys", "generate")
    sealbench(env, "images", "build", "lexical")
    sealbench(env, "run", str(MANIFEST), "--out", str(home / "out"), "--progress", "quiet")
    return home


def test_five_commands_from_a_received_tar_to_a_countersigned_verdict(tmp_path: Path) -> None:
    try:
        with private_engine() as address:
            submitter = submit(tmp_path / "submitter", address)
        # That engine and all of its images are gone; the next one starts with none.
        with private_engine() as address:
            review(submitter, tmp_path / "reviewer", address)
    except NoPrivateEngineError as error:
        if ENGINE_REQUIRED:
            pytest.fail(str(error))
        pytest.skip(str(error))


def review(submitter: Path, home: Path, address: str) -> None:
    env = person(home, address)
    received = home / "review"
    received.mkdir()
    shutil.copy(submitter / "out" / "bundle.tar", received)
    key = submitter / ".config" / "sealbench" / "keys" / "default.pub.pem"
    shutil.copy(key, received / "submitter.pub.pem")
    before = (received / "bundle.tar").read_bytes()
    places = {"REVIEW": received, "DATA": ROOT / "manifests" / "data", "PROTOCOL": PROTOCOL}
    variables = " ".join(f"{name}='{value}';" for name, value in places.items())
    said = []
    for command in commands():
        done = subprocess.run(
            ["sh", "-c", f"{variables} {command}"],
            cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    assert "verdict: identical (methods: 4 identical)" in said[0]
    assert "images built here: lexical" in said[0]
    assert "countersigned by me" in said[3]
    assert (received / "bundle.tar").read_bytes() == before
    document = json.loads((received / "again" / "bundle" / "reproduction.json").read_bytes())
    assert document["verdict"] == "identical"
    assert {image["source"] for image in document["images"]} == {"built"}
    assert len(list((received / "bundle.sigs" / "reviews").iterdir())) == 1
    assert (received / "review.tar").stat().st_size > 0
