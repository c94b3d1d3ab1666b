"""Was a unit's outcome what its author expected, and was the run cut short? Pure."""

from __future__ import annotations

from runner.model import Outcome, UnitOutcome

#: Reasons not to start a unit; those of a cancellation begin alike.
BUDGET_SPENT = "earlier units of this repeat used up the method's wall budget"
CANCELLED_BEFORE = "the run was cancelled before "


def as_expected(record: UnitOutcome, expected: Outcome) -> bool:
    """Whether a unit ended as its method's ``expect`` says.

    Who expects a timeout also expects what follows from it: nothing is left of the budget for the
    units that come later.
    """
    if record.outcome is expected:
        return True
    return expected is Outcome.TIMEOUT and record.evidence.not_started_reason == BUDGET_SPENT


def cut_short(record: UnitOutcome) -> bool:
    """Whether somebody stopped the run before this unit had its turn or came to its end.

    A unit that could not start, for want of budget, of model files or of a secret, has its record
    and its reason: the run is over as planned.
    """
    if record.outcome is Outcome.NOT_STARTED:
        reason = record.evidence.not_started_reason
        return reason is None or reason.startswith(CANCELLED_BEFORE)
    return record.outcome is Outcome.CANCELLED
