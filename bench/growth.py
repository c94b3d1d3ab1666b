"""Our own CPU time over a whole run of 10, 100 and 1,000 units that do next to nothing.

Manifest to verified bundle on the scripted engine: containers cost nothing, so what grows is ours.
Each unit answers 25 queries with the same ten documents; its rows are harvested, scored, sealed and
verified like any others. In memory where there is such a place: a disk's own time is not ours.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import Stopwatch, print_limit, side

SIZES = (10, 100, 1_000)
REPEATS = 100
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it is made by tempfile
GOAL = 1.25


def whole_run(watch: Stopwatch, units: int) -> int:
    """Run, seal and verify so many units; return how many outcomes the bundle has."""
    from runner.engine.fake import Script, Step
    from tests.sealed import backwards, sandbox

    methods, repeats = max(1, units // REPEATS), min(units, REPEATS)
    names = [f"method-{number}" for number in range(methods)]
    script = Script(steps=(Step(act=backwards),))
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        box = sandbox(
            Path(folder) / "box", *names, extra=f"repeats: {repeats}",
            scripts=dict.fromkeys(names, script),
        )  # fmt: skip
        with watch:
            result = box.run()
            report = box.verify()
    if report.faults or not report.recomputed.holds:
        raise RuntimeError(f"the bundle does not verify: {report.faults}")
    return len(result.outcomes)


def main() -> int:
    """Print CPU a unit at each size, and late units against early ones; 1 when a goal is missed."""
    seconds = []
    for units in SIZES:
        found = side(whole_run, units)
        if found.value != units:
            raise RuntimeError(f"{found.value} outcomes of {units} units")
        seconds.append(found.cpu_seconds)
        print(
            f"{units:,} units: {found.cpu_seconds:.2f} s CPU, "
            f"{found.cpu_seconds / units * 1000:.1f} ms each, peak {found.peak_mib:.0f} MiB",
            flush=True,
        )
    # What one more unit costs: the start of a run, which is paid once, falls out.
    early = (seconds[1] - seconds[0]) / (SIZES[1] - SIZES[0])
    late = (seconds[2] - seconds[1]) / (SIZES[2] - SIZES[1])
    return 0 if print_limit("one more unit, of 1,000 / of 100", late / early, "x", GOAL) else 1


if __name__ == "__main__":
    sys.exit(main())
