"""A paper -> its facets: the transformers of the multi-facet recommender, with PyTorch.

The encoder reads the words of title and abstract, each closed by ``<SEP>``, and ``<eos>``; the
decoder turns the state of ``<eos>`` into one query a facet and looks at all states again. A paper
always takes all positions, its words at the end, and what is before them is not masked: so it was
trained. One paper is one call on one thread, and its facets depend on its words alone.

Source: Chang et al., "Cold-start Paper Recommendation using Multi-facet Embedding", 2021, in the
form that OpenReview deploys: post-norm transformers as BERT's, learned positions, no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from dense.encoder import Batch
from dense.mfr_files import END, READER, UNKNOWN, WRITER, Tensors, read_recommender
from dense.mfr_words import words
from dense.snapshot import ModelError, Snapshot
from dense.vectors import Vectors

#: Between title and abstract in a text that is embedded; no published text has it.
BREAK = "\x1e"
TITLE, ABSTRACT = 1, 2
_EPSILON = 1e-12
Numbers = npt.NDArray[np.int64]


def arranged(text: str, vocabulary: Mapping[str, int], positions: int) -> Numbers:
    """Return a paper as (2, positions): the numbers of its words, and what each is a word of. Pure.

    The types are one fewer than the words, for ``<eos>`` has none, and both stand at the end: each
    word has the type of the word before it, the first of all has 0. The published scores come from
    that, so it stays. Of longer texts the first words are kept, and the last of each row.
    """
    parts = [[*words(part), "<sep>"] for part in text.split(BREAK)]
    kinds = [kind for kind, part in zip((TITLE, ABSTRACT), parts, strict=True) for _ in part]
    numbers = [vocabulary.get(word, UNKNOWN) for part in parts for word in part]
    found = np.zeros((2, positions), dtype=np.int64)
    for row, values in zip(found, ([*numbers, END], kinds), strict=True):
        if len(values) > positions:
            row[:] = [*values[: positions - 1], values[-1]]
        else:
            row[positions - len(values) :] = values
    return found


class FacetEncoder:
    """Reads papers of ``dense.embed`` with a recommender: one vector is all facets of a paper."""

    def __init__(self, snapshot: Snapshot, *, threads: int, batch_size: int, heads: int) -> None:
        import torch

        self._torch, self._heads = torch, heads
        self._threads, self._batch_size = threads, batch_size
        model = read_recommender(snapshot.folder)
        if model.form.width % heads:
            raise ModelError(f"{heads} attention heads do not divide a width of {model.form.width}")
        self._vocabulary, self._form = model.vocabulary, model.form
        self._encoder, self._decoder = model.encoder, model.decoder
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(mode=True)

    def tokenise(self, texts: Sequence[str]) -> list[Numbers]:
        """Return each text (title, ``BREAK``, abstract) as ``arranged`` numbers."""
        return [arranged(text, self._vocabulary, self._form.positions) for text in texts]

    def encode(self, tokens: Sequence[Numbers]) -> Iterator[tuple[Batch, Vectors]]:
        """Yield the facets of papers in the order given, ``batch_size`` papers at a time."""
        with ThreadPoolExecutor(
            self._threads, initializer=self._torch.set_num_threads, initargs=(1,)
        ) as pool:
            for start in range(0, len(tokens), self._batch_size):
                chosen = tokens[start : start + self._batch_size]
                places = tuple(range(start, start + len(chosen)))
                facets = np.stack(list(pool.map(self.facets, chosen)))
                yield (
                    Batch(places=places, tokens=self._form.positions),
                    facets.reshape(len(chosen), -1),
                )

    def facets(self, paper: Numbers) -> Vectors:
        """Return the facets of one arranged paper, (facets, size), each of length 1 or 0."""
        torch = self._torch
        with torch.inference_mode():
            found = self._write(self._read(torch.from_numpy(paper)))
            unit = found / (_EPSILON + found.norm(dim=1, keepdim=True))
        return np.asarray(unit.numpy(), dtype=np.float32)

    def _read(self, paper: Any) -> Any:
        """Numbers -> the states of all positions, (positions, width)."""
        weights, start = self._encoder, f"{READER}.emb_layer"
        numbers, kinds = paper
        states = weights["encoder.weight"][numbers]
        if self._form.word_size != self._form.width:
            states = self._linear(weights, "seq_summarizer.linear_trans_dim", states)
        states = states + weights[f"{start}.position_embeddings.weight"]
        states = states + weights[f"{start}.token_type_embeddings.weight"][kinds]
        states = self._norm(weights, f"{start}.LayerNorm", states)
        for layer in range(self._form.reader_layers):
            name = f"{READER}.layer.{layer}"
            states = self._attend(weights, f"{name}.attention", states, states)
            states = self._feed(weights, name, states)
        return states

    def _write(self, states: Any) -> Any:
        """States -> facets, (facets, size), of any length."""
        weights, numbers = self._decoder, range(self._form.facets)
        queries = self._torch.stack(
            [self._linear(weights, f"init_linear_arr.{number}", states[-1]) for number in numbers]
        )
        queries = self._norm(weights, f"{WRITER}.emb_layer.LayerNorm", queries)
        for layer in range(self._form.writer_layers):
            name = f"{WRITER}.layer.{layer}"
            queries = self._attend(weights, f"{name}.self_attention", queries, queries)
            queries = self._attend(weights, f"{name}.memory_attention", queries, states)
            queries = self._feed(weights, name, queries)
        return self._torch.stack(
            [self._linear(weights, f"out_linear_arr.{n}", queries[n]) for n in numbers]
        )

    def _attend(self, weights: Tensors, name: str, states: Any, memory: Any) -> Any:
        def split(part: str, source: Any) -> Any:
            found = self._linear(weights, f"{name}.self.{part}", source)
            return found.view(len(source), self._heads, -1).transpose(0, 1)

        seen = self._torch.nn.functional.scaled_dot_product_attention(
            split("query", states), split("key", memory), split("value", memory)
        )
        joined = self._linear(
            weights, f"{name}.output.dense", seen.transpose(0, 1).reshape(len(states), -1)
        )
        return self._norm(weights, f"{name}.output.LayerNorm", joined + states)

    def _feed(self, weights: Tensors, name: str, states: Any) -> Any:
        inner = self._torch.nn.functional.gelu(
            self._linear(weights, f"{name}.intermediate.dense", states)
        )
        outer = self._linear(weights, f"{name}.output.dense", inner)
        return self._norm(weights, f"{name}.output.LayerNorm", outer + states)

    def _linear(self, weights: Tensors, name: str, states: Any) -> Any:
        return self._torch.nn.functional.linear(
            states, weights[f"{name}.weight"], weights[f"{name}.bias"]
        )

    def _norm(self, weights: Tensors, name: str, states: Any) -> Any:
        return self._torch.nn.functional.layer_norm(
            states,
            states.shape[-1:],
            weights[f"{name}.weight"],
            weights[f"{name}.bias"],
            _EPSILON,
        )
