"""Checking rows: 1,000,000 rows of about 755 bytes, in full, against jsonschema on a sample.

In full: UTF-8, framing, strict JSON, duplicate keys, schema, ids known and unique, SHA-256. The
reference needs about twenty minutes for a million rows, so it gets a sample and its time is
extrapolated; the output says so. Memory is compared between a tenth of the rows and all of them.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Stopwatch, print_limit, print_ratio, scale_of, side

ROWS = 1_000_000
DEPTH = 20
CORPUS = 100_000
SAMPLE = 1_000
GOAL_SECONDS = 20.0
#: What more rows may add: a flag a row for uniqueness, and the allocator's noise.
GROWTH_MIB = 8.0


def lines(count: int) -> Iterator[bytes]:
    """Yield made-up rows in compact JSON, about 755 bytes each."""
    import orjson

    source = random.Random(1)  # noqa: S311 - made-up data
    for number in range(count):
        documents = [f"doc-{i}" for i in source.sample(range(CORPUS), DEPTH)]
        score = 30.0
        pairs = []
        for name in documents:
            score -= source.random()
            pairs.append((name, score))
        row = {
            "query_id": f"query-{number}",
            "ranking": pairs,
            "latency_ms": source.random() * 100,
            "error": None,
        }
        yield orjson.dumps(row) + b"\n"


def ours(watch: Stopwatch, path: str, planned: int) -> int:
    """Check and hash a file; return how many rows are valid. ``planned`` ids are known before."""
    import hashlib

    from runner.rows.read import RetrievalIds, RetrievalRows, read_rows

    queries = (f"query-{number}" for number in range(planned))
    ids = RetrievalIds.of(queries, (f"doc-{number}" for number in range(CORPUS)))
    with watch, Path(path).open("rb", buffering=1 << 20) as stream:
        result = read_rows(stream, RetrievalRows(ids), sink=hashlib.sha256().update)
    if result.report.fault_count:
        raise RuntimeError(f"made-up rows are refused: {result.report.faults[:1]}")
    return result.report.valid


def reference(watch: Stopwatch, path: str, count: int) -> int:
    """Check the first ``count`` rows with json and jsonschema, its validator compiled once."""
    from jsonschema import Draft202012Validator

    from runner import schemas

    validator = Draft202012Validator(schemas.load_schema("row-retrieval"))
    valid = 0
    with Path(path).open("rb") as stream, watch:
        for _, line in zip(range(count), stream, strict=False):
            valid += next(validator.iter_errors(json.loads(line)), None) is None
    return valid


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; exit code 1 if a goal is missed."""
    scale = scale_of(arguments, __doc__ or "")
    total = max(10, round(ROWS * scale))
    tenth = total // 10
    sample = min(SAMPLE, total)
    with tempfile.TemporaryDirectory() as folder:
        full, part = Path(folder) / "full.jsonl", Path(folder) / "part.jsonl"
        with full.open("wb") as all_rows, part.open("wb") as some_rows:
            for number, line in enumerate(lines(total)):
                all_rows.write(line)
                if number < tenth:
                    some_rows.write(line)
        size = full.stat().st_size // total
        # The same ids are known in both runs: only the number of rows differs.
        checked = side(ours, str(full), total)
        small = side(ours, str(part), total)
        peer = side(reference, str(full), sample)
    seconds = peer.cpu_seconds * total / sample
    met = [
        print_limit(
            f"{total} rows of {size} bytes checked in full",
            checked.cpu_seconds,
            "s CPU",
            GOAL_SECONDS * scale,
        ),
        print_ratio(
            f"the same against jsonschema (on {sample} rows, extrapolated)",
            checked.cpu_seconds,
            "jsonschema",
            seconds,
            1.0,
        ),
        print_limit(
            f"peak memory of {total} rows over that of {tenth}",
            checked.peak_mib - small.peak_mib,
            "MiB",
            GROWTH_MIB,
        ),
    ]
    print(f"  peak memory: {small.peak_mib:.0f} MiB, then {checked.peak_mib:.0f} MiB")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
