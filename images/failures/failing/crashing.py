"""Answers half of the queries and exits with code 3."""

from __future__ import annotations

import sys

from sealbench_sdk import Rows, load_corpus, load_queries, load_task

from failing.honest import prepare


def main() -> None:
    """``config``: exit_code."""
    task, queries = load_task(), load_queries()
    answer = prepare(task, load_corpus())
    with Rows() as rows:
        for query in queries[: len(queries) // 2]:
            rows.answer(query, answer)
    print("giving up half way", file=sys.stderr)
    sys.exit(int(task.config.get("exit_code", 3)))


if __name__ == "__main__":
    main()
