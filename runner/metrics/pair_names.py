"""The names of the pair metrics, apart from their arithmetic: `check` needs no numpy."""

from __future__ import annotations

from runner.errors import ProtocolError
from runner.schema_faults import suggest

RANKED = ("average_precision", "auroc")
DECIDED = ("f1", "precision", "recall", "accuracy")
METRICS = (*RANKED, *DECIDED)


def unknown(name: str) -> ProtocolError:
    """Return the error for a name that is no pair metric."""
    hint = suggest(name, METRICS)
    fix = f"use one of: {', '.join(METRICS)}"
    return ProtocolError("metric.unknown", f"no pair metric {name!r}{hint}", fix=fix)
