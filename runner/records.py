"""``UnitOutcome`` <-> one record of outcomes.jsonl, and the other way to write evidence down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from runner.canonical import canonical_bytes
from runner.errors import BundleError, Where
from runner.model import (
    Evidence,
    HostUse,
    ImagePin,
    Limits,
    NetworkUse,
    Outcome,
    RowFault,
    RowsReport,
    Unit,
    UnitOutcome,
)

NANO = 1_000_000_000
_SAME = ("method", "method_id", "dataset", "repeat")


def outcome_record(outcome: UnitOutcome) -> dict[str, Any]:
    """Return the record of one unit: plain JSON values that fit the schema ``outcome``.

    Seconds are the evidence's nanoseconds / 10**9; null is what was not measured.
    """
    unit, evidence = outcome.unit, outcome.evidence
    return {
        "unit_id": unit.unit_id,
        "method": unit.method,
        "method_id": unit.method_id,
        "dataset": unit.dataset,
        "repeat": unit.repeat,
        "outcome": outcome.outcome.value,
        "reason": outcome.reason,
        "evidence": evidence_record(evidence),
        "started": outcome.started,
        "wall_seconds": _seconds(evidence.wall_ns),
        "cpu_seconds": _seconds(evidence.cpu_ns),
        "peak_memory_bytes": evidence.peak_memory_bytes,
        "image": None if outcome.image is None else _plain(outcome.image),
        "limits": _plain(outcome.limits),
        "rows_expected": evidence.rows.expected if evidence.rows else None,
        "rows_valid": evidence.rows.valid if evidence.rows else None,
    }


def outcome_line(outcome: UnitOutcome) -> bytes:
    """Return the record as one line of outcomes.jsonl: canonical JSON and a line feed."""
    return canonical_bytes(outcome_record(outcome)) + b"\n"


def evidence_record(evidence: Evidence) -> dict[str, Any]:
    """Return every field of the evidence as plain JSON values; ``imported`` and ``network`` only
    where they are, and so is ``first_error`` of rows; ``whole`` only where they are not."""
    record = _plain(evidence)
    if evidence.imported is None:
        del record["imported"]
    if evidence.network is None:
        del record["network"]
    else:
        hosts = {name: _plain(use) for name, use in evidence.network.hosts.items()}
        record["network"] = {**_plain(evidence.network), "hosts": hosts}
    if evidence.rows is not None:
        faults = [_plain(fault) for fault in evidence.rows.faults]
        record["rows"] = {**_plain(evidence.rows), "faults": faults}
        if evidence.rows.whole:
            del record["rows"]["whole"]
        if evidence.rows.first_error is None:
            del record["rows"]["first_error"]
    return record


def evidence_from_record(record: Mapping[str, Any]) -> Evidence:
    """Return the evidence of a record that fits its schema."""
    rows = record["rows"]
    values = {
        **record,
        "rows": None if rows is None else _rows(rows),
        "harvest_refused": tuple(record["harvest_refused"]),
        "warnings": tuple(record["warnings"]),
        "unmeasured": dict(record["unmeasured"]),
        "network": _network(record.get("network")),
    }
    return Evidence(**values)


def outcome_from_record(
    record: Mapping[str, Any], units: Mapping[str, Unit], where: Where | None = None
) -> UnitOutcome:
    """Return the outcome of a record that fits the schema ``outcome``.

    ``units`` are the plan's, by unit_id. Raises ``BundleError`` for a unit that was not planned,
    and for a record that contradicts its unit or its own evidence.
    """
    unit = units.get(record["unit_id"])
    if unit is None:
        raise _contradiction(f"unit {record['unit_id']} is not in the plan", where)
    outcome = UnitOutcome(
        unit=unit,
        outcome=Outcome(record["outcome"]),
        reason=record["reason"],
        evidence=evidence_from_record(record["evidence"]),
        started=record["started"],
        image=record["image"] and ImagePin(**record["image"]),
        limits=Limits(**record["limits"]),
    )
    again = outcome_record(outcome)
    for name, value in record.items():
        if value != again[name]:
            source = "the plan" if name in _SAME else "its evidence"
            message = f"{name} is {value!r}, and {source} says {again[name]!r}"
            raise _contradiction(message, where)
    return outcome


def _contradiction(message: str, where: Where | None) -> BundleError:
    return BundleError(
        "bundle.bad-outcome",
        message,
        fix="get the bundle again from its source: a sealed record is never edited",
        where=where,
    )


def _rows(record: Mapping[str, Any]) -> RowsReport:
    faults = tuple(RowFault(**fault) for fault in record["faults"])
    return RowsReport(**{**record, "faults": faults})


def _network(record: Mapping[str, Any] | None) -> NetworkUse | None:
    if record is None:
        return None
    hosts = {name: HostUse(**use) for name, use in record["hosts"].items()}
    return NetworkUse(**{**record, "hosts": hosts, "refused": dict(record["refused"])})


def _plain(value: Any) -> dict[str, Any]:
    """Return a flat dataclass as a dict, with lists for tuples and dicts for mappings."""
    found: dict[str, Any] = {}
    for one in fields(value):
        item = getattr(value, one.name)
        if isinstance(item, tuple):
            item = list(item)
        elif isinstance(item, Mapping):
            item = dict(item)
        found[one.name] = item
    return found


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NANO
