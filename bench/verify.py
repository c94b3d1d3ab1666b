"""Verifying a whole bundle of 1,000,000 rows: signature, digests, rows, every score again.

The bundle is a real one, sealed by a run on the scripted engine over a made-up collection, with the
labels at hand. Memory is compared between a tenth of the rows and all of them.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Stopwatch, print_limit, scale_of, side
from bench.rows import lines as row_lines

QUERIES = 1_000_000
CORPUS = 100_000
GOAL_SECONDS, GOAL_MIB = 60.0, 1024.0

FREEZE = """\
schema: sealbench/freeze/v1
benchmark: bench-v1
version: "1.0.0"
title: Made-up collection
description: Only for measuring.
category: retrieval
metrics: [ndcg_at_10, recall_at_1, recall_at_5, recall_at_10, mrr_at_10, map_at_10]
primary_metric: ndcg_at_10
top_k: 10
rules: {queries_without_positives: count_as_zero}
budget: {output: 4GiB, wall: 1h, memory: 1GiB}
datasets:
  - name: made-up
    task: retrieval
    format: beir
    qrels: test
    source_url: none
    source_revision: own:1.0.0
    licence: CC0-1.0
    citation: none
    redistribution: free
    selection: all
"""
RUN = """\
schema: sealbench/run/v1
name: bench
protocol: bench-v1.protocol.json
splits: [all]
limits: {output: 4GiB, wall: 1h}
methods:
  - name: made-up
    image: sha256:%s
    command: [made-up]
"""


def collection(folder: Path, queries: int) -> None:
    """Write a collection in BEIR layout: short documents, one or two relevant ones a query."""
    source = random.Random(2)  # noqa: S311 - made-up data
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(CORPUS):
            line = {"_id": f"doc-{number}", "title": "", "text": f"text {number}"}
            stream.write(json.dumps(line) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(queries):
            stream.write(f'{{"_id": "query-{number}", "text": "q {number}"}}\n')
    with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8") as stream:
        stream.write("query-id\tcorpus-id\tscore\n")
        for number in range(queries):
            for document in source.sample(range(CORPUS), 1 + number % 2):
                stream.write(f"query-{number}\tdoc-{document}\t1\n")


def seal(_watch: Stopwatch, folder: str, queries: int) -> int:
    """Freeze, run and seal; return the size of the rows in bytes."""
    from collections.abc import Mapping

    from runner.engine.fake import FakeEngine, Script, Step
    from runner.engine.fake_cgroups import FakeCgroups
    from runner.keys import generate, load_private
    from runner.manifest import load_freeze_manifest
    from runner.progress import make_reporter
    from runner.protocol.freeze import freeze
    from runner.protocol.store import write_frozen
    from runner.run import Host, RunOptions, run_manifest
    from runner.signals import CancelToken

    top = Path(folder)
    collection(top / "data" / "made-up", queries)
    (top / "freeze.yaml").write_text(FREEZE, encoding="utf-8")
    protocol, local = freeze(load_freeze_manifest(top / "freeze.yaml"), top / "data")
    write_frozen(protocol, local, top)
    (top / "run.yaml").write_text(RUN % ("ab" * 32), encoding="utf-8")

    def write(mounts: Mapping[str, Path]) -> None:
        with (mounts["/out"] / "rows.jsonl").open("wb") as stream:
            stream.writelines(rows(queries))

    script = Script(steps=(Step(act=write),), exit_after_s=0.1)
    key = generate(top / "keys")
    run_manifest(
        top / "run.yaml",
        RunOptions(data_root=top / "data", out=top / "out", key=load_private(key.private_pem)),
        host=Host(
            open_engine=lambda: FakeEngine({}, default=script),
            open_cgroups=lambda _info: FakeCgroups(),
        ),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )
    parts = (top / "out" / "bundle" / "rows").rglob("part-*.jsonl")
    return sum(part.stat().st_size for part in parts)


def rows(queries: int) -> Iterator[bytes]:
    """The rows of the rows benchmark: its documents are those of the collection."""
    return row_lines(queries)


def verify(watch: Stopwatch, folder: str) -> int:
    """Verify with labels as ``sealbench verify`` does; return how many scores came out again."""
    from runner.keys import load_public
    from runner.protocol.load import load_protocol
    from runner.trust import explicit
    from runner.verify.bundle import VerifyRequest, verify_bundle

    top = Path(folder)
    with watch:
        protocol = load_protocol(top / "bench-v1.protocol.json")
        report = verify_bundle(
            VerifyRequest(
                bundle=top / "out" / "bundle",
                protocol_id=protocol.protocol_id,
                protocol=protocol,
                trust=explicit([load_public(top / "keys" / "default.pub.pem")]),
                data_root=top / "data",
            )
        )
    if report.faults or not report.recomputed.holds or report.documents is None:
        raise RuntimeError(f"the bundle is refused: {report.faults[:1]}")
    return len(report.documents.results["per_dataset"])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when a goal is missed."""
    queries = int(QUERIES * scale_of(arguments, __doc__ or ""))
    met = True
    peaks = []
    for count in (max(1, queries // 10), queries):
        with tempfile.TemporaryDirectory(prefix="sealbench-bench-") as folder:
            size = side(seal, folder, count).value
            found = side(verify, folder)
        peaks.append(found.peak_mib)
        print(f"{count} rows, {size / 1e6:.0f} MB, {found.value} scores", flush=True)
    share = queries / QUERIES
    met &= print_limit("verify", found.cpu_seconds, "s CPU", GOAL_SECONDS * share)
    met &= print_limit("verify, peak memory", peaks[-1], "MiB", GOAL_MIB)
    print(f"peak memory at a tenth of the rows: {peaks[0]:.0f} MiB", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
