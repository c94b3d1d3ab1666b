"""Starts processes until the kernel refuses, then fails; its children would linger."""

from __future__ import annotations

import os
import time

from sealbench_sdk import load_task


def main() -> None:
    """``config``: processes and sleep_s, upper bounds for runs without a pids limit."""
    config = load_task().config
    limit, sleep_s = int(config.get("processes", 512)), float(config.get("sleep_s", 600))
    for number in range(limit):
        try:
            child = os.fork()
        except OSError as error:
            raise SystemExit(f"fork refused after {number}: {type(error).__name__}") from None
        if child == 0:
            time.sleep(sleep_s)
            os._exit(0)
    print(f"nothing stopped me at {limit} processes")


if __name__ == "__main__":
    main()
