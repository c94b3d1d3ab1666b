"""What a run shows and what it does not, in sentences that follow from its own facts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from runner.config_freeze import ConfigFreeze
from runner.declares import exactness, fused_depth
from runner.model import MethodPlan, Outcome, Plan, UnitOutcome
from runner.protocol.load import Protocol
from runner.protocol.splits import ALL, CALIBRATION, HELDOUT


def boundary(
    plan: Plan,
    protocol: Protocol,
    outcomes: Sequence[UnitOutcome],
    *,
    dirty: bool | None,
    frozen: ConfigFreeze | None,
) -> dict[str, list[str]]:
    """Return ``shows`` and ``does_not_show``: sentences for people, in a fixed order."""
    return {
        "shows": [
            *_work(plan, protocol, outcomes),
            *_overridden(plan),
            *_search(plan, protocol),
            *_splits_shown(plan, frozen),
        ],
        "does_not_show": [
            *_splits_not_shown(plan, protocol, frozen),
            *_methods_not_shown(plan),
            *_failures(outcomes),
            *_source(dirty),
            *_always(plan, protocol),
        ],
    }


def _work(plan: Plan, protocol: Protocol, outcomes: Sequence[UnitOutcome]) -> Iterator[str]:
    done = sum(record.outcome is Outcome.OK for record in outcomes)
    names = ", ".join(entry.name for entry in protocol.datasets)
    yield (
        f"{_count(len(plan.methods), 'method')} under protocol {plan.protocol_id} on {names}: "
        f"{done} of {_count(len(outcomes), 'unit')} ended ok, and every figure follows from the "
        "rows in this bundle and the labels"
    )
    executed = [method for method in plan.methods if method.image is not None]
    sealed_off = [method for method in executed if method.network is None]
    if sealed_off:
        yield (
            f"executed here in containers pinned by digest, without the labels and without "
            f"network: {_names(sealed_off)}"
        )
    for method in executed:
        if method.network is not None:
            hosts = ", ".join(method.network.allow)
            yield f"{method.name} was executed here and could reach {hosts}"


def _search(plan: Plan, protocol: Protocol) -> Iterator[str]:
    exact = [method for method in plan.methods if exactness(method) == "exact"]
    loose = [method for method in plan.methods if method.declares.get("exact") is False]
    if exact:
        yield f"by their own declaration exact search, no approximate index: {_names(exact)}"
    for method in plan.methods:
        if exactness(method) == "exact to a depth":
            yield (
                f"by its own declaration {method.name} searches each part exactly and fuses the "
                f"first {fused_depth(method, protocol.top_k)} documents of each"
            )
    if loose:
        yield f"by their own declaration approximate search: {_names(loose)}"


def _overridden(plan: Plan) -> Iterator[str]:
    if plan.overrides:
        said = "; ".join(
            f"{name} {_words(value)}" for name, value in sorted(plan.overrides.items())
        )
        yield f"set on the command line, otherwise than in run.yaml: {said}"


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _splits_shown(plan: Plan, frozen: ConfigFreeze | None) -> Iterator[str]:
    if frozen is not None:
        yield (
            f"the configuration was settled and signed on {frozen.frozen_on} (its signer's clock), "
            f"before the held-out split was scored here: {frozen.config_hash}"
        )
    elif HELDOUT in plan.splits and CALIBRATION in plan.splits:
        yield "one configuration, scored on the calibration and the held-out split in one run"


def _splits_not_shown(plan: Plan, protocol: Protocol, frozen: ConfigFreeze | None) -> Iterator[str]:
    if protocol.calibration is None:
        return
    if HELDOUT in plan.splits and frozen is None:
        yield (
            "that the configuration was settled before the held-out split was seen: this bundle "
            "has no configuration freeze"
        )
    if CALIBRATION in plan.splits:
        yield "how methods do on unseen queries by calibration figures: that split is for tuning"
    if ALL in plan.splits:
        yield (
            f"a result to tune on: {ALL} is a final receipt over all queries, the calibration "
            "ones among them, and no tuning surface"
        )


def _methods_not_shown(plan: Plan) -> Iterator[str]:
    imported = [method for method in plan.methods if method.image is None]
    if imported:
        yield (
            f"how, when, where or on what these rows were computed, for they were imported and "
            f"not executed here: {_names(imported)}"
        )
    local = [method for method in plan.methods if method.image and not method.image.published]
    if local:
        yield f"where others get the images of: {_names(local)} (not the published ones)"
    silent = [method for method in plan.methods if method.image and not method.declares]
    if silent:
        yield f"how these search, exactly or not, for they declare nothing of it: {_names(silent)}"


def _failures(outcomes: Sequence[UnitOutcome]) -> Iterator[str]:
    counts = Counter(record.outcome.value for record in outcomes if record.outcome != Outcome.OK)
    for outcome, count in sorted(counts.items()):
        yield f"anything by {_count(count, 'unit')} that ended as {outcome}: their scores are null"


def _source(dirty: bool | None) -> Iterator[str]:
    if dirty is None:
        yield "which source the runner itself was built from: it did not run from a repository"
    elif dirty:
        yield "the runner's source as committed: it had changes that are in no commit"


def _always(plan: Plan, protocol: Protocol) -> Iterator[str]:
    if plan.repeats == 1 and any(method.image is not None for method in plan.methods):
        yield "how figures vary from run to run: every method ran once"
    yield "speed on another machine: times and latencies compare within this host only"
    if "retrieval" in protocol.tasks:
        yield "that unjudged documents are not relevant: they count as if they were not"
    yield (
        "that no method, and no model inside one, has met these data before: the labels were out "
        "of reach during the run, not before it"
    )
    yield "that its author is honest: a signature says who sealed this, and that it is unchanged"


def _names(methods: Sequence[MethodPlan]) -> str:
    return ", ".join(method.name for method in methods)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
