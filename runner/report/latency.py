"""How long answers took, and all that a reader must know before comparing: shared by page and run.

What a latency covers is the method's to say. What is known of it follows from its declaration and
its settings; the rest is called not stated, never assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.model import MethodPlan, UnitOutcome

Summary = Mapping[str, Any]

HEAD = ("mean", "p50", "p95", "max", "threads", "batch size", "warm-up", "load at start")
#: Modes in which a query is text all the way: nothing is encoded.
WORDS_ALONE = ("lexical", "fts_only")
ENCODING = "query_encoding"


def measured(
    summaries: Iterable[Summary], methods: Sequence[MethodPlan], records: Iterable[UnitOutcome]
) -> Iterator[tuple[Summary, MethodPlan, tuple[str, ...]]]:
    """Yield each summary with latencies of a method that ran here, and its cells under ``HEAD``.

    Latencies in imported rows were not measured here, and stand in no table.
    """
    executed = {method.name: method for method in methods if method.image is not None}
    loads = {
        (record.unit.method, record.unit.dataset, record.unit.repeat): record.evidence.load_start
        for record in records
    }
    for summary in summaries:
        latency, method = summary.get("latency_ms"), executed.get(summary["method"])
        if latency is None or method is None:
            continue
        load = loads.get((method.name, summary["dataset"], summary["repeat"]))
        figures = [f"{latency[name]:.3g}" for name in ("mean", "p50", "p95", "max")]
        yield (
            summary,
            method,
            (
                *figures,
                str(-(-method.limits.cpus_milli // 1000)),
                str(method.config.get("batch_size", "-")),
                warm_up(method),
                "-" if load is None else f"{load:.2f}",
            ),
        )


def warm_up(method: MethodPlan) -> str:
    """Say how many queries a method declares to answer before it measures."""
    count = method.declares.get("warm_up")
    if count is None:
        return "not stated"
    return f"{count} {'query' if count == 1 else 'queries'}"


def query_encoding(method: MethodPlan) -> str | None:
    """Return ``before`` or ``timed`` where the method's settings say when it encodes a query."""
    value = method.config.get(ENCODING)
    return value if value in ("before", "timed") else None


def coverage(methods: Iterable[MethodPlan]) -> list[str]:
    """Say what the latencies of these methods include, in sentences."""
    found = [
        (
            "the methods measure it themselves, in the container (with the SDK: from when they "
            "have a query until they have its ranking); starting, reading the inputs, loading a "
            "model and indexing come before and are not in it"
        )
    ]
    declared: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {"before": [], "timed": [], "unstated": []}
    for method in methods:
        said = method.declares.get("latency")
        encoding = query_encoding(method)
        if said is not None:
            declared.setdefault(str(said), []).append(method.name)
        if encoding is not None:
            groups[encoding].append(method.name)
        elif said is None and method.declares.get("mode") not in WORDS_ALONE:
            groups["unstated"].append(method.name)
    found += [f"declared by {', '.join(names)}: {said}" for said, names in declared.items()]
    if groups["before"]:
        found.append(
            f"the encoding of the query is not in the latency of {', '.join(groups['before'])} "
            f"({ENCODING}: before, for all queries at once): these do not compare with lexical "
            f"methods, which do all of a query's work in it; {ENCODING}: timed measures it too"
        )
    if groups["timed"]:
        names = ", ".join(groups["timed"])
        found.append(f"the encoding of the query is in the latency of {names} ({ENCODING}: timed)")
    if groups["unstated"]:
        names = ", ".join(groups["unstated"])
        found.append(f"what it covers of a query's work is not stated by {names}")
    return found
