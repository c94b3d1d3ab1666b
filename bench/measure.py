"""How the benchmarks measure and print: process CPU time, both sides in one run.

CPU time and ratios, because a shared machine moves wall times by half. Each side runs in a fresh
process, so that one side's heap does not slow the other's garbage collector.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """CPU seconds of the measured part, peak memory of its process, and what it returned."""

    cpu_seconds: float
    peak_mib: float
    value: Any


class Stopwatch:
    """CPU time of the part of a side that counts: ``with watch:`` may come several times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0

    def __enter__(self) -> Stopwatch:
        self._begin = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._begin


def side(function: Callable[..., Any], *arguments: Any) -> Measured:
    """Run ``function(watch, *arguments)`` in a process of its own and return what it took."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, function, arguments).result()


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Measured:
    watch = Stopwatch()
    value = function(watch, *arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(cpu_seconds=watch.seconds, peak_mib=peak, value=value)


def children_cpu() -> float:
    """Return the CPU seconds of all child processes that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_ratio(work: str, ours: float, peer_name: str, peer: float, goal: float) -> bool:
    """Print one line ``work: ours, peer, ratio, goal`` and return whether the goal is met."""
    ratio = peer / ours
    met = ratio >= goal
    print(
        f"{work}: ours {ours:.3f} s CPU, {peer_name} {peer:.3f} s CPU, "
        f"{ratio:.1f} x faster (goal >= {goal:g} x) {'met' if met else 'MISSED'}",
        flush=True,
    )
    return met


def print_limit(work: str, value: float, unit: str, limit: float) -> bool:
    """Print one line for a value that has an upper limit and return whether it is kept."""
    met = value <= limit
    verdict = "met" if met else "MISSED"
    print(f"{work}: {value:.2f} {unit} (goal <= {limit:.4g} {unit}) {verdict}", flush=True)
    return met


def scale_of(arguments: list[str] | None, description: str) -> float:
    """Return ``--scale`` (1.0 is the size that the goals are about)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of rows")
    scale = float(parser.parse_args(arguments).scale)
    if not 0 < scale <= 10:
        parser.error("--scale is above 0 and at most 10")
    return scale
