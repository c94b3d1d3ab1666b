"""SQLite's FTS5 with its own bm25(): full-text search by Python's standard library alone.

A query's words are quoted one by one and joined by OR, so that no character of a query is ever
read as FTS5 syntax. bm25() is negative, better matches lower: the score is its negation.
"""

from __future__ import annotations

import sqlite3

from sealbench_sdk import Answer, Document, Query, Ranking, Task, run

from methods.text import words


def match_expression(text: str) -> str:
    """Return the FTS5 expression that matches any word of a text; empty if there is none."""
    return " OR ".join(f'"{word}"' for word in words(text))


def prepare(task: Task, corpus: list[Document]) -> Answer:
    """Fill an in-memory table; ``config``: tokenizer (an FTS5 ``tokenize=`` value)."""
    tokenizer = str(task.config.get("tokenizer", "unicode61")).replace("'", "''")
    database = sqlite3.connect(":memory:")
    database.execute(
        f"CREATE VIRTUAL TABLE corpus USING fts5(content, content='', tokenize='{tokenizer}')"
    )
    # Numbered in id order: the row number then breaks ties as the id would, and no query has to
    # fetch the id of every document that it matches.
    documents = sorted(corpus, key=lambda document: document.id)
    database.executemany(
        "INSERT INTO corpus(rowid, content) VALUES (?, ?)",
        ((number, document.content) for number, document in enumerate(documents)),
    )
    database.commit()

    def answer(query: Query) -> Ranking:
        expression = match_expression(query.text)
        if not expression:
            return []
        found = database.execute(
            "SELECT rowid, -bm25(corpus) AS score FROM corpus WHERE corpus MATCH ?"
            " ORDER BY score DESC, rowid ASC LIMIT ?",
            (expression, task.top_k),
        )
        return [(documents[number].id, score) for number, score in found]

    return answer


if __name__ == "__main__":
    run(prepare)
