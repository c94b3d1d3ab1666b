"""reproduction.json in a bundle: read strictly, and held against the bundle that it stands in.

What it says of the original cannot be judged without the original. Whoever has both executes or
compares again; a countersignature beside the original is what counts there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.bundle.admission import Fault, fault_of
from runner.bundle.documents import parse_canonical
from runner.bundle.read import BundleView
from runner.errors import BundleError
from runner.reproduction import NAME, contradictions
from runner.verify.documents import Documents


def read_reproduction(
    view: BundleView, documents: Documents | None, faults: list[Fault]
) -> Mapping[str, Any] | None:
    """Return the document; None where the bundle is no reproduction. Appends every fault."""
    if view.manifest.get(NAME) is None:
        return None
    try:
        document = parse_canonical(view.read_verified(NAME), kind="reproduction", file=NAME)
    except BundleError as error:
        faults.append(fault_of(error, NAME))
        return None
    if documents is None:
        return document
    plan, protocol = documents.plan, documents.protocol
    problems = [*contradictions(document, plan.run_id, protocol.protocol_id)]
    names = [method.name for method in plan.methods]
    if [method["method"] for method in document["methods"]] != names:
        problems.append("its methods are not the plan's")
    outcomes = {
        (record.unit.method, record.unit.dataset, record.unit.repeat): record.outcome.value
        for record in documents.outcomes
    }
    said = {
        (method["method"], unit["dataset"], unit["repeat"]): unit["reproduction"]["outcome"]
        for method in document["methods"]
        for unit in method["units"]
    }
    if said != outcomes:
        problems.append("its outcomes are not those of outcomes.jsonl")
    faults += [Fault(file=NAME, code="bundle.contradiction", message=text) for text in problems]
    return document
