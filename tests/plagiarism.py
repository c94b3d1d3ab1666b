"""Whole runs of a plagiarism benchmark on the fake engine, over small datasets of their own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from runner.engine.api import ContainerSpec
from runner.engine.fake import FakeEngine, Script
from runner.engine.fake_cgroups import FakeCgroups
from runner.manifest import load_freeze_manifest
from runner.progress import make_reporter
from runner.protocol.freeze import freeze
from runner.protocol.load import Protocol, load_protocol
from runner.protocol.store import write_frozen
from runner.run import Host, RunOptions, RunResult, run_manifest
from runner.signals import CancelToken
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.sealed import IMAGE, KEY, TRUST, Method, does
from tests.unit.code_files import freeze_text, write_pairs, write_toy

Score = Callable[[str, str], float]


def alike(left: str, right: str) -> float:
    return SequenceMatcher(None, left, right).ratio()


def answers(score: Score) -> Method:
    """A method for both tasks that scores two texts."""

    def act(mounts: Mapping[str, Path]) -> None:
        asked = json.loads((mounts["/in"] / "task.json").read_bytes())
        rows = _pairs(mounts, score) if asked["task"] == "pair" else _rankings(mounts, score)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (mounts["/out"] / "rows.jsonl").write_text(text, encoding="utf-8")

    return act


def read(mounts: Mapping[str, Path], name: str) -> list[dict[str, Any]]:
    lines = (mounts["/in"] / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _pairs(mounts: Mapping[str, Path], score: Score) -> list[dict[str, Any]]:
    texts = {row["_id"]: row["text"] for row in read(mounts, "sources.jsonl")}
    return [
        {
            "pair_id": pair["pair_id"],
            "score": score(texts[pair["left_id"]], texts[pair["right_id"]]),
            "error": None,
        }
        for pair in read(mounts, "pairs.jsonl")
    ]


def _rankings(mounts: Mapping[str, Path], score: Score) -> list[dict[str, Any]]:
    corpus = read(mounts, "corpus.jsonl")
    rows = []
    for query in read(mounts, "queries.jsonl"):
        found = sorted((-score(query["text"], doc["text"]), doc["_id"]) for doc in corpus)
        ranking = [[ident, -value] for value, ident in found]
        rows.append(
            {"query_id": query["_id"], "ranking": ranking, "latency_ms": 1.0, "error": None}
        )
    return rows


SCRIPTS: Mapping[str, Script] = {
    "alike": does(answers(alike)),
    "constant": does(answers(lambda _left, _right: 0.5)),
    "lengths": does(answers(lambda left, right: min(len(left), len(right)) / 100)),
    "crash": does(lambda _mounts: None, exit_code=3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A frozen toy benchmark with its data, and a place for runs."""

    folder: Path
    protocol_path: Path

    @property
    def data_root(self) -> Path:
        return self.folder / "data"

    @property
    def protocol(self) -> Protocol:
        return load_protocol(self.protocol_path)

    def manifest(self, methods: Sequence[str], *, split: str = "test", name: str = "toy") -> Path:
        lines = [
            "schema: sealbench/run/v1",
            f"name: {name}",
            f"protocol: {self.protocol_path.name}",
            f"splits: [{split}]",
            "limits: {wall: 20s, grace: 100ms, memory: 256MiB, output: 1MiB}",
            "methods:",
        ]
        for method in methods:
            lines += [f"  - name: {method}", f"    image: {IMAGE}", f"    command: [{method}]"]
        path = self.protocol_path.parent / f"{name}-{'-'.join(methods)}.yaml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def run(
        self, out: Path, *methods: str, scripts: Mapping[str, Script] | None = None,
        split: str = "test", name: str = "toy",
    ) -> RunResult:  # fmt: skip
        known = {**SCRIPTS, **(scripts or {})}

        def script(spec: ContainerSpec) -> Script:
            return known[spec.command[0]]

        engine = FakeEngine(script)
        return run_manifest(
            self.manifest(methods, split=split, name=name),
            RunOptions(key=KEY, data_root=self.data_root, out=out),
            host=Host(
                open_engine=lambda: engine,
                open_cgroups=lambda _info: FakeCgroups(),
                patience_s=0.2,
            ),
            reporter=make_reporter("quiet", io.StringIO()),
            cancel=CancelToken(),
        )

    def verify(self, out: Path, *, labels: bool = True) -> VerifyReport:
        expected = self.protocol
        return verify_bundle(
            VerifyRequest(
                bundle=out / "bundle",
                protocol_id=expected.protocol_id,
                protocol=expected,
                trust=TRUST,
                data_root=self.data_root if labels else None,
            )
        )


def bench(
    folder: Path,
    *,
    validation: bool = False,
    pairs: Sequence[Sequence[str]] | None = None,
    **freezing: str,
) -> Bench:
    """Write the toy data (or these pairs), freeze them and return what was frozen."""
    root = write_toy(folder / "data", validation=validation)
    if pairs is not None:
        write_pairs(root / "toy" / "pair", pairs)
    if validation:
        freezing.setdefault("extra", "validation_path: validation")
    manifest = folder / "toy-v1.yaml"
    manifest.write_text(freeze_text(root, **freezing), encoding="utf-8")
    protocol, local = freeze(load_freeze_manifest(manifest), root)
    files = write_frozen(protocol, local, folder / "frozen")
    return Bench(folder=folder, protocol_path=files.portable)


def three_runs(made: Bench) -> dict[str, Path]:
    """Seal three runs of one protocol, each with methods of its own, one of which fails; return
    their bundles by name."""
    runs: dict[str, Sequence[str]] = {
        "first": ("alike", "crash"), "second": ("lengths",), "third": ("constant", "alike"),
    }  # fmt: skip
    for name, methods in runs.items():
        made.run(made.folder / name, *methods, name=name)
    return {name: made.folder / name / "bundle" for name in runs}
