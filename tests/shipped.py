"""The shipped manifests as a user runs them: the command, a key of one's own, the real data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "manifests"
PROTOCOLS = MANIFESTS / "benchmarks"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a key and the images; the engine is the one that DOCKER_HOST leads to."""

    env: Mapping[str, str]

    @staticmethod
    def made(keys: Path) -> User:
        """Return a user whose key is made in a folder; builds the images where they are not."""
        user = User({**os.environ, "SEALBENCH_KEYS": str(keys)})
        user.sealbench("images", "build", timeout=900)
        user.sealbench("keys", "generate")
        return user

    def command(self, *arguments: object) -> list[str]:
        """Return the arguments of a process that runs the command."""
        return [sys.executable, "-m", "runner.cli", *map(str, arguments)]

    def sealbench(
        self, *arguments: object, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end; it must succeed."""
        done = subprocess.run(
            self.command(*arguments), cwd=ROOT, env=self.env, capture_output=True, text=True,
            check=False, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done

    def verified(self, out: Path, protocol: str, data_root: Path, *options: object) -> str:
        """Verify a bundle with its labels, every score recomputed; return what is said."""
        place = PROTOCOLS / f"{protocol}.protocol.json"
        said = self.sealbench(
            "verify", out, "--protocol", place, "--data-root", data_root, "--require", "recomputed",
            *options,
        ).stdout  # fmt: skip
        assert "REFUSED" not in said
        return said


def outcomes(out: Path) -> list[dict[str, Any]]:
    """Return the lines of outcomes.jsonl."""
    return [json.loads(line) for line in (out / "bundle/outcomes.jsonl").read_text().splitlines()]


def means(out: Path, split: str = "all") -> dict[tuple[str, str], float | None]:
    """Return (method, metric) -> mean over the datasets."""
    results = json.loads((out / "bundle" / "results.json").read_bytes())
    return {
        (row["method"], row["metric"]): row["mean_score"]
        for row in results["aggregate"]
        if row["split"] == split
    }


def shipped(name: str, *methods: str) -> dict[str, Any]:
    """Return a shipped manifest with some of its methods only, to be written anywhere."""
    document: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text("utf-8"))
    if methods:
        kept = [entry for entry in document["methods"] if entry["name"] in methods]
        assert [entry["name"] for entry in kept] == list(methods)
        document["methods"] = kept
    return document


def written(document: Mapping[str, Any], folder: Path) -> Path:
    """Write a shipped manifest and its protocol into a folder and return its path."""
    shutil.copy(MANIFESTS / document["protocol"], folder / "protocol.json")
    moved = {**document, "protocol": "protocol.json"}
    place = folder / "run.yaml"
    place.write_text(yaml.safe_dump(moved, sort_keys=False), encoding="utf-8")
    return place
