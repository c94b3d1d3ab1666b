"""Similarity of source texts by embeddings: cosines of pairs, or whole rankings.

Texts are normalised as for the other methods on sources. A negative cosine counts as 0: a score of
the pair task is a similarity from 0 to 1.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from sealbench_sdk import input_folder
from similarity.data import load_asked, load_pairs, load_texts, pair_lines, write_rows
from similarity.text import normalised

from dense import vector_only
from dense.answers import run
from dense.embed import Embedder, EmbeddingConfig
from dense.papers import cosines
from dense.texts import Role


def answer_pairs() -> bytes:
    """Return the rows of all pairs."""
    asked = load_asked()
    texts, pairs = load_texts("sources.jsonl"), load_pairs()
    role = Role(max_characters=int(asked.config.get("max_characters", 0)))
    names = list(texts)
    with Embedder(EmbeddingConfig.of(asked.config), threads=asked.threads) as embedder:
        vectors = embedder.embed([role.text(normalised(texts[name])) for name in names], names)
        print(embedder.summary(), file=sys.stderr, flush=True)
    place = {name: number for number, name in enumerate(names)}
    scores = [
        float(cosines(vectors[[place[pair.left]]], vectors[[place[pair.right]]])[0, 0])
        for pair in pairs
    ]
    return pair_lines([pair.id for pair in pairs], np.clip(scores, 0.0, 1.0).tolist())


def main() -> None:
    """Answer whichever of the two tasks is asked."""
    task = json.loads((input_folder() / "task.json").read_bytes())["task"]
    if task == "pair":
        write_rows([answer_pairs()])
    else:
        run(vector_only.prepare)


if __name__ == "__main__":
    main()
