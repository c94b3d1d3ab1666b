"""The files of a multi-facet recommender: its vocabulary and its weights, read strictly.

A mounted folder has them as OpenReview lays them out: ``feature_vocab_file`` (a line is a word, its
frequency and its number, with tabs between) and, in ``mfr_model_checkpoint``, the state dicts
``encoder.pt`` and ``decoder.pt``. All sizes follow from the tensors; one that is missing, unknown
or of another shape is refused, because the rest would give other vectors without a word.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dense.snapshot import ModelError

VOCABULARY = "feature_vocab_file"
ENCODER = "mfr_model_checkpoint/encoder.pt"
DECODER = "mfr_model_checkpoint/decoder.pt"
#: Numbers of a word that the vocabulary lacks, and of a text's end; 0 is no word at all.
UNKNOWN, END = 1, 2

READER = "seq_summarizer.encoder_array.0"
WRITER = "dep_learner.decoder_array.0"
Tensors = Mapping[str, Any]
Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Sizes of a recommender. ``width``: of the states of both transformers."""

    words: int
    word_size: int
    width: int
    positions: int
    types: int
    reader_layers: int
    writer_layers: int
    facets: int
    facet_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """What the files hold."""

    vocabulary: Mapping[str, int]
    encoder: Tensors
    decoder: Tensors
    form: Form


def read_recommender(folder: Path) -> Recommender:
    """Read a folder; ``ModelError`` names the file and what is wrong with it."""
    vocabulary = read_vocabulary(_file(folder, VOCABULARY))
    encoder, decoder = (_tensors(_file(folder, name)) for name in (ENCODER, DECODER))
    form = form_of(encoder, decoder, len(vocabulary))
    return Recommender(vocabulary=vocabulary, encoder=encoder, decoder=decoder, form=form)


def read_vocabulary(path: Path) -> dict[str, int]:
    """Return word -> number. Lines with a fourth column are words that were left out."""
    numbers: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8") as stream:
            for at, line in enumerate(stream, 1):
                columns = line.rstrip().split("\t")
                if len(columns) == 4:
                    continue
                if len(columns) != 3 or columns[2] != str(len(numbers)) or columns[0] in numbers:
                    raise ModelError(
                        f"{path.name}:{at} is no new word with its frequency and the number"
                        f" {len(numbers)}"
                    )
                numbers[columns[0]] = len(numbers)
    except UnicodeDecodeError:
        raise ModelError(f"{path.name} is not UTF-8") from None
    if (numbers.get("<unk>"), numbers.get("<eos>")) != (UNKNOWN, END):
        raise ModelError(f"{path.name} does not have <unk> as {UNKNOWN} and <eos> as {END}")
    return numbers


def form_of(encoder: Tensors, decoder: Tensors, words: int) -> Form:
    """Return the sizes of two state dicts that fit each other and a vocabulary of ``words``.

    ``ModelError`` for a tensor that is missing, unknown or of another shape, and for decoders whose
    facets have predicted lengths.
    """
    places, types, table = (
        _shape(encoder, ENCODER, name, 2)
        for name in (
            f"{READER}.emb_layer.position_embeddings.weight",
            f"{READER}.emb_layer.token_type_embeddings.weight",
            "encoder.weight",
        )
    )
    form = Form(
        words=words,
        word_size=table[1],
        width=places[1],
        positions=places[0],
        types=types[0],
        reader_layers=_count(encoder, rf"{READER}.layer.(\d+)."),
        writer_layers=_count(decoder, rf"{WRITER}.layer.(\d+)."),
        facets=_count(decoder, r"out_linear_arr.(\d+)."),
        facet_size=_shape(decoder, DECODER, "out_linear_arr.0.weight", 2)[0],
    )
    if form.types < 3:
        raise ModelError(f"{ENCODER} knows {form.types} types of words, not title and abstract")
    _compare(encoder, ENCODER, dict(_encoder_shapes(form)))
    kept = {name: tensor for name, tensor in decoder.items() if not _unread(name)}
    _compare(kept, DECODER, dict(_decoder_shapes(form)))
    last = decoder.get("coeff_out_linear_3.weight")
    if last is not None and tuple(last.shape)[:1] != (2,):
        raise ModelError(f"{DECODER} predicts how long its facets are, which is not supported")
    return form


def _unread(name: str) -> bool:
    """Two outputs for each facet that its training predicted beside it; no score reads them."""
    return re.match(r"coeff_(trans\.|out_linear_[123]\.(weight|bias)$)", name) is not None


def _encoder_shapes(form: Form) -> Shapes:
    yield "encoder.weight", (form.words, form.word_size)
    if form.word_size != form.width:
        yield from _linear("seq_summarizer.linear_trans_dim", form.width, form.word_size)
    start = f"{READER}.emb_layer"
    yield f"{start}.position_embeddings.weight", (form.positions, form.width)
    yield f"{start}.token_type_embeddings.weight", (form.types, form.width)
    yield from _norm(f"{start}.LayerNorm", form.width)
    for layer in range(form.reader_layers):
        yield from _layer(f"{READER}.layer.{layer}", ("attention",), form.width)


def _decoder_shapes(form: Form) -> Shapes:
    for facet in range(form.facets):
        yield from _linear(f"init_linear_arr.{facet}", form.width, form.width)
        yield from _linear(f"out_linear_arr.{facet}", form.facet_size, form.width)
    yield from _norm(f"{WRITER}.emb_layer.LayerNorm", form.width)
    for layer in range(form.writer_layers):
        attentions = ("self_attention", "memory_attention")
        yield from _layer(f"{WRITER}.layer.{layer}", attentions, form.width)


def _layer(prefix: str, attentions: Iterable[str], width: int) -> Shapes:
    for attention in attentions:
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _linear(f"{prefix}.{attention}.{part}", width, width)
        yield from _norm(f"{prefix}.{attention}.output.LayerNorm", width)
    yield from _linear(f"{prefix}.intermediate.dense", 4 * width, width)
    yield from _linear(f"{prefix}.output.dense", width, 4 * width)
    yield from _norm(f"{prefix}.output.LayerNorm", width)


def _linear(name: str, outputs: int, inputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _compare(found: Tensors, file: str, expected: Mapping[str, tuple[int, ...]]) -> None:
    for name, wanted in expected.items():
        if (shape := _shape(found, file, name, len(wanted))) != wanted:
            raise ModelError(f"{name} of {file} has the shape {shape}, not {wanted}")
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise ModelError(f"{file} has {unknown[0]}, which is no part of this model")


def _shape(tensors: Tensors, file: str, name: str, dimensions: int) -> tuple[int, ...]:
    if name not in tensors:
        raise ModelError(f"{file} lacks {name}")
    shape = tuple(tensors[name].shape)
    if len(shape) != dimensions:
        raise ModelError(f"{name} of {file} has the shape {shape}, not {dimensions} dimensions")
    return shape


def _count(tensors: Tensors, pattern: str) -> int:
    found = (re.match(pattern, name) for name in tensors)
    return len({match.group(1) for match in found if match})


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise ModelError(f"{folder.name} has no {name}: it is no multi-facet recommender")
    return path


def _tensors(path: Path) -> dict[str, Any]:
    import torch

    try:
        # weights_only: a pickle of a stranger must not run anything.
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise ModelError(
            f"{path.name} cannot be loaded as tensors ({type(error).__name__})"
        ) from None
    if not isinstance(loaded, dict) or not all(map(torch.is_tensor, loaded.values())):
        raise ModelError(f"{path.name} is no state dict")
    return {str(name): tensor.detach().float() for name, tensor in loaded.items()}
