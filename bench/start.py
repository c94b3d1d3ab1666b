"""What a command costs before it does anything: `--help`, `check`, `plan`, and what a host is.

CPU time of whole processes, the median of several, for a user waits that long each time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import children_cpu, print_limit

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 7
GOAL_COMMAND, GOAL_HOST_MS = 0.2, 150.0
MANIFEST = "manifests/quickstart.yaml"
COMMANDS = (("--help",), ("check", MANIFEST), ("plan", MANIFEST))


def command(*arguments: str) -> float:
    """Return the CPU seconds of one command from a warm page cache, by the median."""
    spent = []
    # Whoever uses a command has its bytecode; a machine may be told not to keep any.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for turn in range(ROUNDS + 1):
        before = children_cpu()
        subprocess.run(
            [sys.executable, "-m", "runner.cli", *arguments],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        if turn > 0:  # the first one compiles, and reads the files from the disk
            spent.append(children_cpu() - before)
    return statistics.median(spent)


def host() -> float:
    """Return the wall milliseconds of the whole host document, git and all, by the median."""
    from runner.host import host_document, read_load

    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        host_document(None, load_start=read_load(), load_end=read_load())
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


def main() -> int:
    """Print one line each; 1 when a goal is missed."""
    met = [
        print_limit(" ".join(("sealbench", *one)), command(*one), "s CPU", GOAL_COMMAND)
        for one in COMMANDS
    ]
    met.append(print_limit("host metadata", host(), "ms wall", GOAL_HOST_MS))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
