"""A small multi-facet recommender with made-up weights, and its arithmetic by numpy alone.

The arithmetic goes word by word and reviewer by reviewer, and shares nothing with the image's code.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weights = dict[str, Array]

SPECIAL = ("[null]", "<unk>", "<eos>")
WORDS = (*SPECIAL, "<sep>", "trees", "of", "grammar", "parse", "markets", "auctions", ",", "robots")
POSITIONS, WORD_SIZE, WIDTH, HEADS, FACETS, SIZE = 12, 6, 8, 2, 3, 5
READER_LAYERS, WRITER_LAYERS = 2, 1


def vocabulary_text() -> str:
    """Return a vocabulary file, with a word that was left out."""
    lines = [f"{word}\t{9 - number % 3}\t{number}" for number, word in enumerate(WORDS)]
    lines.insert(6, "rare\t1\t1\tunk")
    return "".join(line + "\n" for line in lines)


def _affine(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}


def _layer(name: str, attentions: Sequence[str], width: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for one in attentions:
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            found |= _affine(f"{name}.{one}.{part}", width, width)
        found |= _norm(f"{name}.{one}.output", width)
    found |= _affine(f"{name}.intermediate.dense", 4 * width, width)
    found |= _affine(f"{name}.output.dense", width, 4 * width)
    return found | _norm(f"{name}.output", width)


def encoder_shapes() -> dict[str, tuple[int, ...]]:
    lead = "seq_summarizer.encoder_array.0"
    found: dict[str, tuple[int, ...]] = {"encoder.weight": (len(WORDS), WORD_SIZE)}
    found |= _affine("seq_summarizer.linear_trans_dim", WIDTH, WORD_SIZE)
    found[f"{lead}.emb_layer.position_embeddings.weight"] = (POSITIONS, WIDTH)
    found[f"{lead}.emb_layer.token_type_embeddings.weight"] = (6, WIDTH)
    found |= _norm(f"{lead}.emb_layer", WIDTH)
    for number in range(READER_LAYERS):
        found |= _layer(f"{lead}.layer.{number}", ["attention"], WIDTH)
    return found


def decoder_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a decoder, those of the two predictions that no score reads included."""
    lead, both = "dep_learner.decoder_array.0", WIDTH + SIZE
    found: dict[str, tuple[int, ...]] = _norm(f"{lead}.emb_layer", WIDTH)
    for number in range(FACETS):
        found |= _affine(f"init_linear_arr.{number}", WIDTH, WIDTH)
        found |= _affine(f"out_linear_arr.{number}", SIZE, WIDTH)
    for number in range(WRITER_LAYERS):
        found |= _layer(f"{lead}.layer.{number}", ["self_attention", "memory_attention"], WIDTH)
    found |= _norm("coeff_trans.emb_layer", both) | _layer(
        "coeff_trans.layer.0", ["attention"], both
    )
    found |= _affine("coeff_out_linear_1", both // 2, both)
    found |= _affine("coeff_out_linear_2", both // 2, both // 2)
    return found | _affine("coeff_out_linear_3", 2, both // 2)


def filled(shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """Return weights that follow from their names; those of norms are near 1 and 0."""
    found = {}
    for name, shape in shapes.items():
        chance = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)
        near = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        found[name] = (near + 0.7 * chance).astype(np.float32).astype(np.float64)
    return found


def arranged(title: Sequence[str], abstract: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return numbers and types of all positions, as described: both at the end, types one fewer."""
    said = [*title, "<sep>", *abstract, "<sep>", "<eos>"]
    numbers = [WORDS.index(word) if word in WORDS else 1 for word in said]
    types = [1] * (len(title) + 1) + [2] * (len(abstract) + 1)

    def placed(values: list[int]) -> list[int]:
        if len(values) > POSITIONS:
            return values[: POSITIONS - 1] + values[-1:]
        return [0] * (POSITIONS - len(values)) + values

    return placed(numbers), placed(types)


def facets(title: Sequence[str], abstract: Sequence[str], enc: Weights, dec: Weights) -> Array:
    """Return the facets of a paper, (facets, size), each of length 1, position by position."""
    lead = "seq_summarizer.encoder_array.0"
    states = []
    for place, (number, kind) in enumerate(zip(*arranged(title, abstract), strict=True)):
        word = _apply(enc, "seq_summarizer.linear_trans_dim", enc["encoder.weight"][number])
        word = word + enc[f"{lead}.emb_layer.position_embeddings.weight"][place]
        word = word + enc[f"{lead}.emb_layer.token_type_embeddings.weight"][kind]
        states.append(_normed(enc, f"{lead}.emb_layer", word))
    for layer in range(READER_LAYERS):
        name = f"{lead}.layer.{layer}"
        states = _attended(enc, f"{name}.attention", states, states)
        states = [_fed(enc, name, state) for state in states]
    lead = "dep_learner.decoder_array.0"
    queries = [
        _normed(dec, f"{lead}.emb_layer", _apply(dec, f"init_linear_arr.{n}", states[-1]))
        for n in range(FACETS)
    ]
    for layer in range(WRITER_LAYERS):
        name = f"{lead}.layer.{layer}"
        queries = _attended(dec, f"{name}.self_attention", queries, queries)
        queries = _attended(dec, f"{name}.memory_attention", queries, states)
        queries = [_fed(dec, name, query) for query in queries]
    found = [_apply(dec, f"out_linear_arr.{n}", query) for n, query in enumerate(queries)]
    return np.array([one / np.linalg.norm(one) for one in found])


def _apply(weights: Weights, name: str, vector: Array) -> Array:
    return np.asarray(weights[f"{name}.weight"] @ vector + weights[f"{name}.bias"])


def _normed(weights: Weights, name: str, vector: Array) -> Array:
    centred = vector - vector.mean()
    scaled = centred / math.sqrt(float((centred**2).mean()) + 1e-12)
    return np.asarray(
        weights[f"{name}.LayerNorm.weight"] * scaled + weights[f"{name}.LayerNorm.bias"]
    )


def _attended(
    weights: Weights, name: str, states: Sequence[Array], memory: Sequence[Array]
) -> list[Array]:
    each = WIDTH // HEADS
    keys = [_apply(weights, f"{name}.self.key", one) for one in memory]
    values = [_apply(weights, f"{name}.self.value", one) for one in memory]
    found = []
    for state in states:
        query = _apply(weights, f"{name}.self.query", state)
        seen = []
        for head in range(HEADS):
            part = slice(head * each, (head + 1) * each)
            raw = [math.exp(float(query[part] @ key[part]) / math.sqrt(each)) for key in keys]
            seen.append(
                sum(r / sum(raw) * value[part] for r, value in zip(raw, values, strict=True))
            )
        joined = _apply(weights, f"{name}.output.dense", np.concatenate(seen))
        found.append(_normed(weights, f"{name}.output", joined + state))
    return found


def _fed(weights: Weights, name: str, state: Array) -> Array:
    inner = _apply(weights, f"{name}.intermediate.dense", state)
    active = np.array([x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in inner])
    return _normed(
        weights, f"{name}.output", _apply(weights, f"{name}.output.dense", active) + state
    )


def trained(
    start: Array, papers: Sequence[Array], authorship: Sequence[Sequence[int]], *, steps: int
) -> Array:
    """Return the reviewers' vectors after so many steps over all papers at once, by Adam.

    ``start``: their vectors before. The rate of learning is 0.05.
    """
    table = start.copy()
    first, second = np.zeros_like(table), np.zeros_like(table)
    count = np.zeros(len(table))
    for people in authorship:
        for who in people:
            count[who] += 1
    every = [1 / count[who] for people in authorship for who in people]
    for step in range(1, steps + 1):
        slope = np.zeros_like(table)
        for points, people in zip(papers, authorship, strict=True):
            for who in people:
                length = float(np.linalg.norm(table[who]))
                unit = table[who] / length
                nearest = points[int(np.argmax(points @ unit))]
                weight = 5 * (1 / count[who]) / (sum(every) / len(every)) / (len(papers) * 10)
                # Of |u - t/|t||^2 = 2 - 2 u.t/|t| by t.
                slope[who] -= 2 * weight * (nearest - float(nearest @ unit) * unit) / length
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        table -= 0.05 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))


def distance_score(person: Array, points: Array) -> float:
    """Return 1 less the squared distance from the nearest facet, which may be shortened."""
    nearest = max(points, key=lambda point: float(point @ person) / float(np.linalg.norm(point)))
    share = min(max(float(nearest @ person) / float(nearest @ nearest), 0.0), 1.0)
    return 1.0 - float(((share * nearest - person) ** 2).sum())
