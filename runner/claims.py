"""claims.json: what a bundle binds, method by method, and where its claims end.

Pure: it follows from the other documents of the bundle, so that a verifier makes it again and
compares. Nothing in it is new; it puts together what a reader must know before believing a figure:
what ran on what, how it searched, how sure that is, and what the run cannot show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner.canonical import Json, digest_of
from runner.claim_boundary import boundary
from runner.config_freeze import ConfigFreeze
from runner.declares import exactness, fused_depth, vectors
from runner.merge_host import machines_of
from runner.model import MethodPlan, Outcome, Plan, UnitOutcome
from runner.protocol.load import Protocol, ProtocolDataset

SCHEMA = "sealbench/claims/v1"
FILE = "claims.json"
INDEX_SCHEMA = "sealbench/index-id/v1"
#: How a method may search -> the modes that would show it.
CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "sparse": ("sparse",),
    "graph": ("graph",),
    "matryoshka": (),
    "late_interaction": ("late_interaction",),
}
_MEANING = {
    "sparse": "learned sparse vectors",
    "graph": "search over a graph of neighbours",
    "matryoshka": "embeddings that are cut to fewer dimensions",
    "late_interaction": "late interaction of token vectors",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The documents that claims follow from. ``freeze`` is the bundle's, where it has one."""

    plan: Plan
    protocol: Protocol
    outcomes: Sequence[UnitOutcome]
    host: Mapping[str, Any]
    freeze: ConfigFreeze | None


def claims_document(facts: Facts) -> dict[str, Any]:
    """Return claims.json."""
    plan, protocol, host = facts.plan, facts.protocol, facts.host
    runner = host["runner"]
    return {
        "schema": SCHEMA,
        "protocol_id": plan.protocol_id,
        "run_id": plan.run_id,
        "executable": {
            "version": runner["version"],
            "python": runner["python"],
            "source_commit": runner["source_commit"],
            "source_dirty": runner["dirty"],
            "files_digest": runner.get("files_digest"),
        },
        "datasets": [_dataset(entry, protocol, plan.splits) for entry in protocol.datasets],
        "methods": [_method(method, protocol) for method in plan.methods],
        "capabilities": [_capability(name, plan) for name in CAPABILITIES],
        "config_freeze": facts.freeze and _freeze(facts.freeze),
        **_timing_or_reason(facts),
        "boundary": boundary(
            plan, protocol, facts.outcomes, dirty=runner["dirty"], frozen=facts.freeze
        ),
    }


def _dataset(entry: ProtocolDataset, protocol: Protocol, splits: Sequence[str]) -> dict[str, Any]:
    rule = protocol.document["splits"]
    return {
        "dataset": entry.name,
        "task": entry.task,
        "fingerprint": entry.fingerprint,
        "files": [asdict(file) for file in entry.files],
        "payload": dict(entry.payload),
        "counts": dict(entry.counts),
        "split_algorithm": rule["algorithm"],
        "splits": [
            {"split": name, **asdict(entry.splits[name])} for name in splits if name in entry.splits
        ],
    }


def _method(method: MethodPlan, protocol: Protocol) -> dict[str, Any]:
    declared, depth = method.declares, fused_depth(method, protocol.top_k)
    return {
        "method": method.name,
        "method_id": method.method_id,
        "executed": method.image is not None,
        "image": None if method.image is None else method.image.digest,
        "published": None if method.image is None else method.image.published,
        "command": list(method.command),
        "config": dict(method.config),
        "top_k": protocol.top_k,
        "mode": declared.get("mode"),
        "backend": declared.get("backend"),
        "exactness": exactness(method),
        **({} if depth is None else {"fused_depth": depth}),
        "vectors": vectors(method),
        "models": [asdict(pin) for pin in method.models],
        **({} if method.module is None else {"module": method.module}),
        "index": list(_indexes(method, protocol)),
    }


def _indexes(method: MethodPlan, protocol: Protocol) -> Iterator[dict[str, Json]]:
    """What a method searched. An index is built in the container and thrown away, so its identity
    is that of what it is made from: method, documents, and their number."""
    for entry in protocol.datasets:
        if method.image is None or entry.task != "retrieval":
            continue
        identity: dict[str, object] = {
            "schema": INDEX_SCHEMA,
            "method_id": method.method_id,
            "payload": dict(entry.payload),
        }
        documents = entry.counts.get("documents")
        if documents is not None:
            yield {
                "dataset": entry.name,
                "identity": digest_of({**identity, "documents": documents}),
                "documents": documents,
            }


def _capability(name: str, plan: Plan) -> dict[str, Json]:
    """Is there a method that shows this, and if not, why not?"""
    shown: list[Json] = [
        method.name
        for method in plan.methods
        if method.declares.get("mode") in CAPABILITIES[name]
        or (name == "matryoshka" and method.declares.get("matryoshka") is True)
    ]
    meaning = _MEANING[name]
    because = None if shown else f"unavailable, because no method of this run declares {meaning}"
    return {"capability": name, "methods": shown, "because": because}


def _freeze(frozen: ConfigFreeze) -> dict[str, Json]:
    basis = frozen.calibration
    return {
        "config_hash": frozen.config_hash,
        "frozen_on": frozen.frozen_on,
        "calibration_run": None if basis is None else basis.run_id,
    }


def _timing_or_reason(facts: Facts) -> dict[str, Any]:
    """Times of several machines are no times of one run."""
    count = machines_of(facts.host)
    if count == 1:
        return {"timing": _timing(facts)}
    reason = f"merged from runs on {count} hosts, and times compare within one host only"
    return {"timing": None, "timing_reason": reason}


def _timing(facts: Facts) -> dict[str, Any]:
    """What latencies and times of this run were measured under."""
    host, units = facts.host, {record.unit.unit_id: record for record in facts.outcomes}
    return {
        "cores": host["cpu"]["logical"],
        "jobs": facts.plan.jobs,
        "load_start": host["load"]["start"],
        "load_end": host["load"]["end"],
        "methods": [_method_timing(method, units.values()) for method in facts.plan.methods],
    }


def _method_timing(method: MethodPlan, records: Any) -> dict[str, Any]:
    mine = [record for record in records if record.unit.method == method.name]
    loads = [record.evidence.load_start for record in mine if record.outcome is Outcome.OK]
    batch = method.config.get("batch_size")
    executed = method.image is not None
    whole = batch if isinstance(batch, int) and not isinstance(batch, bool) else None
    return {
        "method": method.name,
        "threads": -(-method.limits.cpus_milli // 1000) if executed else None,
        "cpus_milli": method.limits.cpus_milli if executed else None,
        "batch_size": whole,
        "warm_up": method.declares.get("warm_up"),
        "latency": method.declares.get("latency"),
        "load_start": [load for load in loads if load is not None],
    }
