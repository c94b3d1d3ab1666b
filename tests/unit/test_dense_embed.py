"""Embedding with a stand-in for the model: cache, resume, refusals, batches; no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense import embed, snapshot, vector_only
from dense.answers import EvidenceRows, Found
from dense.embed import Embedder, EmbeddingConfig
from dense.encoder import MIN_TOKENS, Batch, filled, plan_batches
from dense.snapshot import ModelError, read_snapshot
from dense.texts import text_hash
from dense.vectors import VectorError, Vectors
from sealbench_sdk import Document, Query, Task

from runner.schemas import is_valid

DIMENSION = 8


class StandIn:
    """Vectors from the hash of a text; ``fails_after`` batches it is killed."""

    def __init__(self, *_: object, fails_after: int | None = None, **__: object) -> None:
        self.encoded: list[str] = []
        self._fails_after = fails_after

    def tokenise(self, texts: Sequence[str]) -> list[str]:
        return list(texts)

    def encode(self, tokens: Sequence[str]) -> Iterator[tuple[Batch, Vectors]]:
        for number, batch in enumerate(plan_batches([len(text) for text in tokens], 2)):
            if number == self._fails_after:
                raise KeyboardInterrupt
            chosen = [tokens[place] for place in batch.places]
            self.encoded += chosen
            yield batch, np.stack([vector(text) for text in chosen])


def vector(text: str) -> Any:
    if text == "zero":
        return np.zeros(DIMENSION, dtype=np.float32)
    raw = np.frombuffer(text_hash(text)[:DIMENSION], dtype=np.uint8).astype(np.float32) + 1
    return raw / np.float32(np.linalg.norm(raw))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mounted model of the shape that sentence-transformers has."""
    folder = tmp_path / "models" / "tiny"
    (folder / "1_Pooling").mkdir(parents=True)
    config = {"hidden_size": DIMENSION, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"path": path, "type": f"sentence_transformers.models.{kind}"}
                for path, kind in modules
            ]
        )
    )
    pooling = {"word_embedding_dimension": DIMENSION, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    monkeypatch.setattr(snapshot, "MOUNTED", tmp_path / "models")
    return folder


TEXTS = ["a", "bb", "cc", "ddd", "a", "eeee", "ffffff"]
NAMES = [f"d{number}" for number in range(len(TEXTS))]


def embedder(cache: Path | None, stand_in: StandIn) -> Embedder:
    config = EmbeddingConfig(model="tiny")
    return Embedder(config, threads=1, cache=cache, load=lambda *_, **__: stand_in)


def test_a_snapshot_says_how_it_is_used(models: Path) -> None:
    found = read_snapshot("tiny")
    assert (found.dimension, found.max_tokens, found.pooling, found.normalised) == (
        8,
        32,
        "mean",
        True,
    )
    assert read_snapshot("tiny", pooling="cls", max_tokens=500).max_tokens == 64
    (models / "modules.json").unlink()
    with pytest.raises(ModelError, match="set `token_pooling` to one of cls, mean, max"):
        read_snapshot("tiny")
    plain = read_snapshot("tiny", pooling="cls")
    assert (plain.pooling, plain.normalised) == ("cls", False)
    assert plain.digest != found.digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{}", "no hidden_size"),
        ("config.json", "[]", "no JSON object"),
        ("config.json", "{", "is not JSON"),
        ("1_Pooling/config.json", '{"pooling_mode_weightedmean_tokens": true}', "not supported"),
        ("modules.json", '[{"path": "2_Dense", "type": "x.Dense"}]', "a Dense module"),
    ],
)
def test_a_model_that_cannot_be_used_says_why(
    models: Path, name: str, content: str, message: str
) -> None:
    (models / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        read_snapshot("tiny")


def test_a_model_that_is_nowhere_is_not_looked_for_elsewhere(models: Path) -> None:
    with pytest.raises(ModelError, match="models are never downloaded"):
        read_snapshot("absent")
    (models / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        read_snapshot("tiny")


def test_texts_are_embedded_once_and_then_known(models: Path, tmp_path: Path) -> None:
    cold, warm = StandIn(), StandIn()
    with embedder(tmp_path, cold) as first:
        vectors = first.embed(TEXTS, NAMES)
        assert sorted(cold.encoded) == sorted(set(TEXTS))
        assert (first.known, first.computed) == (0, 6)
    assert np.array_equal(vectors, np.stack([vector(text) for text in TEXTS]))
    with embedder(tmp_path, warm) as second:
        assert np.array_equal(second.embed(TEXTS, NAMES), vectors)
        assert warm.encoded == []
        assert "6 texts from the cache, 0 embedded" in second.summary()


def test_a_killed_run_goes_on_where_it_was(models: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    with embedder(whole, StandIn()) as unbroken:
        expected = unbroken.embed(TEXTS, NAMES)
    broken = tmp_path / "broken"
    broken.mkdir()
    killed, again = StandIn(fails_after=2), StandIn()
    with embedder(broken, killed) as first, pytest.raises(KeyboardInterrupt):
        first.embed(TEXTS, NAMES)
    with embedder(broken, again) as second:
        assert np.array_equal(second.embed(TEXTS, NAMES), expected)
    assert killed.encoded
    assert not set(killed.encoded) & set(again.encoded)
    (first_file,), (second_file,) = whole.iterdir(), broken.iterdir()
    assert first_file.read_bytes() == second_file.read_bytes()


def test_a_bad_vector_names_its_document_and_is_not_kept(models: Path, tmp_path: Path) -> None:
    with (
        embedder(tmp_path, StandIn()) as first,
        pytest.raises(VectorError, match="of 'doc 7' is zero"),
    ):
        first.embed(["fine", "zero"], ["doc 6", "doc 7"])
    with embedder(tmp_path, StandIn()) as second:
        assert text_hash("zero") not in second.store


def test_a_cache_that_cannot_be_written_is_no_cache(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed.os, "access", lambda *_: False)  # type: ignore[attr-defined]  # the module's own import
    with embedder(tmp_path / "absent", StandIn()) as found:
        assert found.embed(["a"], ["d"]).shape == (1, DIMENSION)


def test_another_model_or_setting_has_another_cache(models: Path) -> None:
    keys = [embed.store_settings(read_snapshot("tiny", max_tokens=tokens)) for tokens in (0, 16)]
    (models / "config.json").write_text(json.dumps({"hidden_size": DIMENSION}))
    keys.append(embed.store_settings(read_snapshot("tiny")))
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == 3


@pytest.mark.parametrize(
    ("lengths", "size", "expected"),
    [
        ([], 2, []),
        ([5], 2, [(0,)]),
        ([3, 5, 3, 5, 5], 2, [(1, 3), (4,), (0, 2)]),
        ([1, 1, 1], 1, [(0,), (1,), (2,)]),
    ],
)
def test_batches_have_one_length_and_the_longest_first(
    lengths: list[int], size: int, expected: list[tuple[int, ...]]
) -> None:
    batches = plan_batches(lengths, size)
    assert [batch.places for batch in batches] == expected
    assert all(lengths[place] == batch.tokens for batch in batches for place in batch.places)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 2), (1, 63), (1, 64), (3, 7), (32, 256)])
def test_a_small_batch_is_filled_up_with_itself(rows: int, tokens: int) -> None:
    batch = [[row] * tokens for row in range(rows)]
    found = filled(batch)
    assert found[:rows] == batch
    assert len(found) * tokens >= MIN_TOKENS
    assert (len(found) == rows) == (rows * tokens >= MIN_TOKENS)


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size is 0"):
        plan_batches([1], 0)


def search_over(stand_in: StandIn, config: dict[str, Any]) -> vector_only.VectorSearch:
    task = Task(
        task="retrieval", dataset="d", seed=0, top_k=2, config=config, options={}, queries=1,
        documents=3, threads=1,
    )  # fmt: skip
    corpus = [Document("1", "T", "one"), Document("2", "", ""), Document("10", "", "\u05d0\u05d1")]
    return vector_only.VectorSearch(
        embedder(None, stand_in), task, corpus, [Query("q", "\U0001f600" * 800)]
    )


def test_a_search_prepares_documents_and_queries_by_their_role(models: Path) -> None:
    stand_in = StandIn()
    search = search_over(stand_in, {"query_prefix": "query: ", "document_prefix": "passage: "})
    prefix = "passage: "
    assert {f"{prefix}T one", prefix, f"{prefix}\u05d0\u05d1"} <= set(stand_in.encoded)
    assert "query: " + "\U0001f600" * 700 in stand_in.encoded
    hits = search.search(Query("q", "\U0001f600" * 800), 2)
    assert len(hits) == 2


def test_an_unknown_query_is_refused_and_never_embedded_anew(models: Path) -> None:
    stand_in = StandIn()
    search = search_over(stand_in, {"query_encoding": "timed"})
    before = len(stand_in.encoded)
    with pytest.raises(vector_only.UnknownQueryError, match="'q9' was not embedded"):
        search.search(Query("q9", "another text"), 2)
    assert len(stand_in.encoded) == before
    search.search(Query("q", "\U0001f600" * 800), 2)
    assert len(stand_in.encoded) == before + 1  # timed: encoded again, within the latency


@pytest.mark.parametrize("latency", [True, False])
def test_rows_with_evidence_fit_their_schema(tmp_path: Path, latency: bool) -> None:
    path = tmp_path / "rows.jsonl"

    def answer(query: Query) -> Found:
        if query.id == "bad":
            raise RuntimeError("a message that may quote data")
        return Found(ranking=[("d1", 0.5)], evidence={"fts_rank": [None]})

    with EvidenceRows(latency=latency, path=path) as rows:
        rows.found(Query("good", "x"), answer)
        rows.found(Query("bad", "y"), answer)
    good, bad = (json.loads(line) for line in path.read_text().splitlines())
    assert is_valid("row-retrieval", good)
    assert is_valid("row-retrieval", bad)
    assert (good["latency_ms"] is not None) is latency
    assert good["evidence"] == {"fts_rank": [None]}
    assert bad == {
        "query_id": "bad",
        "ranking": [],
        "latency_ms": bad["latency_ms"],
        "error": "RuntimeError",
    }
