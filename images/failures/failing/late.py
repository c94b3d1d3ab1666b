"""Answers half of the queries, then sleeps on, deaf to SIGTERM: only KILL ends it."""

from __future__ import annotations

import signal
import time

from sealbench_sdk import Rows, load_corpus, load_queries, load_task

from failing.honest import prepare


def main() -> None:
    """``config``: sleep_s, an upper bound for runs outside a supervisor."""
    task, queries = load_task(), load_queries()
    answer = prepare(task, load_corpus())
    with Rows() as rows:
        for query in queries[: len(queries) // 2]:
            rows.answer(query, answer)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(float(task.config.get("sleep_s", 600)))


if __name__ == "__main__":
    main()
