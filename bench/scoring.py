"""Scoring rankings: from rows on disk and in memory, against pytrec_eval on the same data.

Shapes: 6,980 queries x 1,000 documents in ranked order with about one relevant document a query
(the shape of MS MARCO passage dev); and deep pools of 5,000 documents in no order, scores tied on
20 levels, 200 judged a query, where counting ranks is at its worst. Synthetic data.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Stopwatch, print_ratio, side

#: trec_eval's name and ours of what both sides compute.
TREC = {
    "ndcg_cut.10": "ndcg_at_10",
    "recall.10": "recall_at_10",
    "recall.100": "recall_at_100",
    "P.10": "precision_at_10",
    "success.1": "success_at_1",
    "success.10": "success_at_10",
    "map_cut.10": "map_at_10",
    "map": "map",
    "recip_rank": "mrr",
}
NAMES = tuple(TREC.values())
CORPUS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size and kind of a made-up run."""

    name: str
    queries: int
    depth: int
    judged: int
    levels: int | None  # of tied scores; None is untied and stored in order


def ranking(shape: Shape, query: int) -> tuple[list[str], list[float], dict[str, int]]:
    """Return (documents, scores, judgments) of one query, always the same ones."""
    source = random.Random(query)  # noqa: S311 - made-up data
    documents = [str(number) for number in source.sample(range(CORPUS), shape.depth)]
    if shape.levels is None:
        # Multiples of 1/64 stay apart in the 32-bit floats that trec_eval keeps.
        scores = [(3 * (shape.depth - i) + source.randrange(3)) / 64 for i in range(shape.depth)]
    else:
        scores = [source.randrange(shape.levels) / 4 for _ in documents]
    outside = [str(CORPUS + i) for i in range(max(1, shape.judged // 10))]
    inside = source.sample(documents, shape.judged)
    return documents, scores, {name: source.randrange(1, 4) for name in [*inside, *outside]}


def judgments_of(shape: Shape) -> dict[str, dict[str, int]]:
    """Return the judgments of all queries."""
    return {f"q{query}": ranking(shape, query)[2] for query in range(shape.queries)}


def write(shape: Shape, folder: Path) -> None:
    """Write the run as rows.jsonl and as run.trec."""
    import orjson

    with (folder / "rows.jsonl").open("wb") as rows, (folder / "run.trec").open("w") as trec:
        for query in range(shape.queries):
            documents, scores, _ = ranking(shape, query)
            pairs = list(zip(documents, scores, strict=True))
            row = {"query_id": f"q{query}", "ranking": pairs, "latency_ms": 1.5, "error": None}
            rows.write(orjson.dumps(row) + b"\n")
            trec.writelines(
                f"q{query} Q0 {name} {rank} {score} run\n"
                for rank, (name, score) in enumerate(pairs, 1)
            )


def ours_from_disk(watch: Stopwatch, shape: Shape, path: str, known: bool) -> list[list[float]]:
    """Read, check in full, hash and score in one pass; ``known`` also checks every id."""
    from runner.metrics.names import parse_metric
    from runner.metrics.qrels import Qrels
    from runner.metrics.ranking import RankingScorer
    from runner.metrics.ranks import RankedBlock
    from runner.rows.read import RetrievalIds, RetrievalRows, read_rows

    judgments = judgments_of(shape)
    ids = RetrievalIds.of(judgments, map(str, range(CORPUS))) if known else None
    with watch, Path(path).open("rb", buffering=1 << 20) as stream:
        metrics = [parse_metric(name) for name in NAMES]
        scorer = RankingScorer(Qrels.of(judgments), metrics, top_k=None, full_rankings=True)
        result = read_rows(
            stream, RetrievalRows(ids), on_block=lambda rows: scorer.add(RankedBlock.of(rows))
        )
        values = scorer.result().values
    if result.report.fault_count or result.report.valid != shape.queries:
        raise RuntimeError(f"made-up rows are refused: {result.report.faults[:1]}")
    return [list(map(float, row)) for row in values]


def ours_in_memory(watch: Stopwatch, shape: Shape) -> list[list[float]]:
    """Score rows that are already parsed."""
    from array import array

    from runner.metrics.names import parse_metric
    from runner.metrics.qrels import Qrels
    from runner.metrics.ranking import score_rankings
    from runner.rows.retrieval import RetrievalRow

    rows, judgments = [], {}
    for query in range(shape.queries):
        documents, scores, judgments[f"q{query}"] = ranking(shape, query)
        rows.append(RetrievalRow(f"q{query}", documents, array("d", scores), 1.5, None))
    qrels = Qrels.of(judgments)
    with watch:
        metrics = [parse_metric(name) for name in NAMES]
        scored = score_rankings(rows, qrels, metrics, top_k=None, full_rankings=True)
    return [list(map(float, row)) for row in scored.values]


def theirs_from_disk(watch: Stopwatch, shape: Shape, path: str) -> list[list[float]]:
    """Let pytrec_eval read a TREC run file and score it."""
    import pytrec_eval

    judgments = judgments_of(shape)
    with watch:
        with Path(path).open() as stream:
            run = pytrec_eval.parse_run(stream)
        found = pytrec_eval.RelevanceEvaluator(judgments, set(TREC)).evaluate(run)
    return list(_columns(found, shape))


def theirs_in_memory(watch: Stopwatch, shape: Shape) -> list[list[float]]:
    """Let pytrec_eval score the dictionaries that it takes."""
    import pytrec_eval

    run: dict[str, dict[str, float]] = {}
    judgments: dict[str, dict[str, int]] = {}
    for query in range(shape.queries):
        documents, scores, judgments[f"q{query}"] = ranking(shape, query)
        run[f"q{query}"] = dict(zip(documents, scores, strict=True))
    evaluator = pytrec_eval.RelevanceEvaluator(judgments, set(TREC))
    with watch:
        found = evaluator.evaluate(run)
    return list(_columns(found, shape))


def _columns(found: dict[str, dict[str, float]], shape: Shape) -> Iterator[list[float]]:
    theirs = {ours: name.replace(".", "_") for name, ours in TREC.items()}
    for query in range(shape.queries):
        yield [found[f"q{query}"][theirs[name]] for name in NAMES]


def _largest_difference(ours: list[list[float]], theirs: list[list[float]]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) for mine, peers in pairs for a, b in zip(mine, peers, strict=True))


def bench(shape: Shape, disk_goal: float, memory_goal: float) -> bool:
    """Measure one shape both ways and print; return whether the goals are met."""
    size = f"{shape.name} {shape.queries} x {shape.depth}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(shape, folder)
        rows, trec = str(folder / "rows.jsonl"), str(folder / "run.trec")
        peer = side(theirs_from_disk, shape, trec)
        plain = side(ours_from_disk, shape, rows, False)
        known = side(ours_from_disk, shape, rows, True)
    met = [
        print_ratio(
            f"{size} from disk", plain.cpu_seconds, "pytrec_eval", peer.cpu_seconds, disk_goal
        )
    ]
    # What a verifier does besides; the peer has no such check, so there is no goal.
    extra = known.cpu_seconds - plain.cpu_seconds
    print(f"  each id checked against {CORPUS} known ones: {extra:+.3f} s CPU")
    print(f"  peak memory: ours {plain.peak_mib:.0f} MiB, pytrec_eval {peer.peak_mib:.0f} MiB")
    memory, memory_peer = side(ours_in_memory, shape), side(theirs_in_memory, shape)
    met.append(
        print_ratio(
            f"{size} in memory",
            memory.cpu_seconds,
            "pytrec_eval",
            memory_peer.cpu_seconds,
            memory_goal,
        )
    )
    if shape.levels is None:
        # On ties trec_eval puts the larger id first, so that only untied figures can agree.
        apart = _largest_difference(plain.value, peer.value)
        print(f"  largest difference from pytrec_eval: {apart:.1e}")
        met.append(apart <= 1e-9)
    return all(met)


def main(arguments: list[str] | None = None) -> int:
    """Run all shapes; exit code 1 if a goal is missed."""
    from bench.measure import scale_of

    scale = scale_of(arguments, __doc__ or "")
    ordered = Shape(
        name="ordered", queries=max(1, round(6980 * scale)), depth=1000, judged=1, levels=None
    )
    deep = Shape(
        name="deep, tied", queries=max(1, round(200 * scale)), depth=5000, judged=200, levels=20
    )
    results = [bench(ordered, 3.0, 5.0), bench(deep, 1.0, 1.0)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
