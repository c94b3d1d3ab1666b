"""Which way a metric points: most are better when higher, losses when lower."""

from __future__ import annotations

_LOSSES = ("wkt_loss", "wktd_at_", "wktd_mean_at_")


def lower_is_better(metric: str) -> bool:
    """Tell whether a smaller value of the metric is the better one."""
    return metric.startswith(_LOSSES)
