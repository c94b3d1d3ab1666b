"""The embedding cache: appended, fsynced, and whole again after a kill at any byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense.store import EmbeddingStore, StoreError, settings_digest
from dense.texts import text_hash
from dense.vectors import Vectors

SETTINGS: dict[str, Any] = {"model": "sha256:" + "1" * 64, "max_tokens": 256}
KEYS = [text_hash(f"text {number}") for number in range(5)]
DIMENSION = 3


def rows(count: int) -> Vectors:
    return np.arange(count * DIMENSION, dtype=np.float32).reshape(count, DIMENSION) + 1


def open_store(folder: Path | None, settings: dict[str, Any] | None = None) -> EmbeddingStore:
    return EmbeddingStore(folder, settings or SETTINGS, DIMENSION)


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append(KEYS[:2], rows(5)[:2])
        store.append(KEYS[2:], rows(5)[2:])
        assert len(store) == 5
    with open_store(tmp_path) as again:
        assert again.dropped == 0
        order = [KEYS[4], KEYS[0], KEYS[4]]
        assert np.array_equal(again.take(order), rows(5)[[4, 0, 4]])
        assert KEYS[3] in again
        assert text_hash("unknown") not in again
        with pytest.raises(KeyError):
            again.take([text_hash("unknown")])


def test_a_file_cut_at_any_byte_opens_with_its_whole_records(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append(KEYS[:3], rows(3))
    data = store.path.read_bytes()
    header = len(data) - 3 * (32 + 4 * DIMENSION + 4)
    for length in range(len(data)):
        store.path.write_bytes(data[:length])
        whole = max(0, (length - header) // (32 + 4 * DIMENSION + 4))
        with open_store(tmp_path) as torn:
            assert len(torn) == whole
            # What was lost is computed again and appended: the file is the one of an unbroken run.
            torn.append(KEYS[whole:3], rows(3)[whole:])
        assert store.path.read_bytes() == data


def test_nothing_after_a_damaged_record_is_trusted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append(KEYS, rows(5))
    data = bytearray(store.path.read_bytes())
    size = 32 + 4 * DIMENSION + 4
    data[len(data) - 3 * size + 40] ^= 1
    store.path.write_bytes(data)
    with open_store(tmp_path) as damaged:
        assert len(damaged) == 2
        assert damaged.dropped == 3 * size


def test_other_settings_have_another_file(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append(KEYS[:1], rows(1))
    with open_store(tmp_path, {**SETTINGS, "max_tokens": 128}) as other:
        assert len(other) == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_of_other_settings_under_our_name_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append(KEYS[:1], rows(1))
    other = settings_digest({**SETTINGS, "max_tokens": 128}).hex()[:16]
    store.path.rename(tmp_path / f"embeddings-{other}.bin")
    with pytest.raises(StoreError, match="does not hold embeddings of this model"):
        open_store(tmp_path, {**SETTINGS, "max_tokens": 128})


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(StoreError, match="another process"):
        open_store(tmp_path)
    with open_store(tmp_path):
        pass


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        pass
    victim = tmp_path / "victim"
    store.path.rename(victim)
    store.path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        open_store(tmp_path)


def test_appended_means_fsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with open_store(tmp_path) as store:
        synced.clear()
        store.append(KEYS[:2], rows(2))
        assert synced == [store.path.stat().st_size]


def test_without_a_folder_it_is_memory_only() -> None:
    with open_store(None) as store:
        store.append(KEYS[:2], rows(2))
        assert np.array_equal(store.take(KEYS[:2]), rows(2))
        assert store.take([]).shape == (0, DIMENSION)


def test_the_digest_of_settings_does_not_depend_on_their_order() -> None:
    assert settings_digest({"a": 1, "b": 2}) == settings_digest({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        settings_digest({"a": float("nan")})


def test_vectors_must_fit_their_keys(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(ValueError, match="2 keys for vectors"):
        store.append(KEYS[:2], rows(3))
