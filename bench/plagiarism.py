"""100,000 pairs of 759-byte sources with Levenshtein: container start to verified bundle.

``--sources`` says over how many sources the pairs are: with 200,000 none is in two pairs, and most
of the peer's time, and much of ours, goes into files; with 2,000 it goes into rows.

CPU of everything that is ours: the supervisor with all its children, and the container by its
control group. Needs an engine and the image ``code``. The peer, matheel 0.7.1, drags in more than a
development machine should carry: name an interpreter that has it with ``--peer PYTHON`` or in the
variable ``PEER`` (``make bench BENCH=plagiarism PEER=...``); without one its published 16.2 s on
two cores like these stand in, and the line says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import children_cpu, print_limit
from tests.unit.code_files import table

PAIRS, SIZE = 100_000, 759
PUBLISHED_S = 16.2
WORDS = [
    "int",
    "for",
    "while",
    "return",
    "if",
    "x",
    "sum",
    "List",
    "new",
    "(",
    ")",
    "{",
    "}",
    ";",
    "\n",
]
FREEZE = """\
schema: sealbench/freeze/v1
benchmark: bench-pairs-v1
version: "1.0.0"
title: Made-up pairs
description: Made-up pairs.
category: plagiarism
metrics: [average_precision, auroc, f1, precision, recall, accuracy]
primary_metric: average_precision
top_k: 10
rules:
  queries_without_positives: count_as_zero
  split_policy: {type: content_disjoint, description: no groups}
  threshold_policy: {type: fixed, value: 0.5}
budget: {wall: 10m, memory: 2GiB, cpus: 2}
datasets:
  - name: pairs
    task: pair
    format: code-pairs
    similarity_options: {code_language: java}
    source_url: https://example.org/
    source_revision: own:1
    source_checksum: SUM
    licence: CC0-1.0
    citation: none
    redistribution: free
    selection: all
"""
RUN = """\
schema: sealbench/run/v1
name: bench-pairs
protocol: bench-pairs-v1.protocol.json
splits: [all]
limits: {wall: 10m, memory: 2GiB, cpus: 2}
methods:
  - {name: levenshtein, image: code}
"""
PEER = """
import sys, time, json
from pathlib import Path
from matheel.datasets import load_pair_dataset
from matheel.evaluation import evaluate_pair_dataset
begun = time.process_time()
dataset = load_pair_dataset(Path(sys.argv[1]))
_, found = evaluate_pair_dataset(
    dataset, similarity_options={"feature_weights": {"levenshtein": 1.0}}
)
print(json.dumps({"cpu": time.process_time() - begun, "f1": found["f1"]}))
"""


def write_data(folder: Path, sources: int) -> None:
    """Write the pairs over so many sources in our layout."""
    source = random.Random(11)  # noqa: S311 - made-up data
    (folder / "sources").mkdir(parents=True)
    files = []
    for number in range(sources):
        text = " ".join(source.choices(WORDS, k=SIZE // 2)).encode()[:SIZE].rstrip()
        text += b"x" * (SIZE - len(text))
        path = f"sources/s{number}.java"
        (folder / path).write_bytes(text)
        files.append((f"s{number}", path, hashlib.sha256(text).hexdigest()))
    (folder / "files.csv").write_bytes(table(("id", "path", "sha256"), files))
    pairs: dict[tuple[int, int], str] = {}
    while len(pairs) < PAIRS:
        number = 2 * len(pairs)
        alone = sources >= 2 * PAIRS
        left, right = (number, number + 1) if alone else sorted(source.sample(range(sources), 2))
        pairs[left, right] = str(source.randrange(2))
    rows = [(f"p{n}", f"s{a}", f"s{b}", y) for n, ((a, b), y) in enumerate(pairs.items())]
    columns = ("pair_id", "left_id", "right_id", "label")
    (folder / "pairs.csv").write_bytes(table(columns, rows))


def write_peer_data(folder: Path, target: Path) -> None:
    """Write the same pairs as the peer reads them."""
    import csv
    import shutil

    shutil.copytree(folder / "sources", target / "sources")
    with (folder / "files.csv").open(newline="") as stream:
        rows = [(row["id"], row["path"]) for row in csv.DictReader(stream)]
    (target / "files.csv").write_bytes(table(("file_id", "file_path"), rows))
    shutil.copy(folder / "pairs.csv", target / "pairs.csv")
    (target / "metadata.json").write_text(json.dumps({"dataset_kind": "pair_classification"}))


def sealbench(*arguments: str) -> None:
    """Run one command; its CPU time counts as a child's."""
    command = [sys.executable, "-m", "runner.cli", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ours(folder: Path, sources: int) -> tuple[float, float]:
    """Return (CPU seconds of supervisor and container, wall seconds) of run and verification."""
    data = folder / "data"
    write_data(data / "pairs", sources)
    from runner.datasets.code_pairs import load_code_pairs
    from runner.datasets.code_sources import tree_checksum

    loaded = load_code_pairs(data / "pairs", name="pairs", root=data)
    text = FREEZE.replace("SUM", tree_checksum(loaded.listing()))
    (folder / "freeze.yaml").write_text(text)
    (folder / "run.yaml").write_text(RUN)
    sealbench("freeze", str(folder / "freeze.yaml"), "--data-root", str(data))
    before, begun = children_cpu(), time.monotonic()
    sealbench(
        "run", str(folder / "run.yaml"), "--data-root", str(data), "--out", str(folder / "out"),
        "--progress", "quiet", "--unsigned",
    )  # fmt: skip
    own, wall = children_cpu() - before, time.monotonic() - begun
    (line,) = (folder / "out" / "bundle" / "outcomes.jsonl").read_text().splitlines()
    inside = json.loads(line)["cpu_seconds"]
    print(
        f"supervisor {own:.1f} s CPU, container {inside:.1f} s CPU, wall {wall:.1f} s", flush=True
    )
    return own + inside, wall


def main(arguments: list[str] | None = None) -> int:
    """Print our CPU seconds against the peer's; 1 when they are more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer", default=os.environ.get("PEER") or None, help="an interpreter with matheel 0.7.1"
    )
    parser.add_argument("--sources", type=int, default=2_000, help="how many different sources")
    parsed = parser.parse_args(arguments)
    peer = parsed.peer
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds, _ = ours(folder, parsed.sources)
        limit, said = PUBLISHED_S, "matheel's published figure"
        if peer is not None:
            (folder / "peer").mkdir()
            write_peer_data(folder / "data" / "pairs", folder / "peer")
            command = [peer, "-c", PEER, str(folder / "peer")]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            limit, said = json.loads(found.stdout)["cpu"], "matheel here"
    work = f"100,000 pairs over {parsed.sources:,} sources, run and verified, against {said}"
    return 0 if print_limit(work, seconds, "s CPU", limit) else 1


if __name__ == "__main__":
    sys.exit(main())
