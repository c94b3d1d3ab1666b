"""A good method: documents ranked by how many of the query's words they hold."""

from __future__ import annotations

from sealbench_sdk import Answer, Document, Query, Ranking, Task, ranking, run


def prepare(task: Task, corpus: list[Document]) -> Answer:
    """Keep each document's set of words."""
    ids = [document.id for document in corpus]
    held = [frozenset(document.content.lower().split()) for document in corpus]

    def answer(query: Query) -> Ranking:
        wanted = frozenset(query.text.lower().split())
        return ranking([len(wanted & words) for words in held], ids, task.top_k)

    return answer


if __name__ == "__main__":
    run(prepare)
