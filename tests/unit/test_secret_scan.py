"""Secrets are found in every usual form, and hidden in streams wherever a chunk ends."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.logs import CappedLog
from runner.secret_refs import Secret
from runner.secret_scan import MARK, Needles, Redactor

VALUE = b'sk-+/"quoted"-\xc3\xa9-0123456789'
NEEDLES = Needles([Secret(name="KEY", value=VALUE), Secret(name="B", value=b"another-secret")])


@pytest.mark.parametrize(
    "shown",
    [
        VALUE,
        b"Authorization: Bearer " + VALUE + b"\n",
        json.dumps({"key": VALUE.decode()}).encode(),
        json.dumps({"key": VALUE.decode()}, ensure_ascii=False).encode(),
        quote(VALUE, safe="").encode(),
        VALUE.hex().encode(),
        b64encode(VALUE),
        b64encode(b":" + VALUE),
        b64encode(b"me:" + VALUE + b"x"),
        b64encode(b"user:" + VALUE + b"xy"),
    ],
)
def test_every_form_is_found(shown: bytes) -> None:
    assert NEEDLES.find(b"before " + shown + b" after") == "KEY"
    assert NEEDLES.find_in(io.BytesIO(b"x" * ((1 << 20) - 5) + shown)) == "KEY"


def test_what_is_no_secret() -> None:
    assert NEEDLES.find(b"sk-nothing 0123456789") is None
    assert NEEDLES.find_in(io.BytesIO(b"x" * (3 << 20))) is None
    assert not Needles([])
    assert Needles([]).find(b"x") is None
    assert NEEDLES.hide("plain") == "plain"
    assert NEEDLES.hide("my another-secret!") == "my [secret]!"


def redacted(data: bytes, cuts: list[int], needles: Needles = NEEDLES) -> bytes:
    redactor, found, at = Redactor(needles), b"", 0
    for cut in sorted(cuts):
        found += redactor.feed(data[at:cut])
        at = max(at, cut)
    return found + redactor.feed(data[at:]) + redactor.end()


@given(
    st.lists(st.sampled_from([VALUE, b"another-secret", b"text ", b"sk-+", b"\n", b"\xff"])),
    st.lists(st.integers(0, 200)),
)
def test_no_chunking_lets_a_secret_through(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    whole = data.replace(VALUE, MARK).replace(b"another-secret", MARK)
    assert redacted(data, cuts) == whole


def test_a_secret_that_begins_with_another() -> None:
    needles = Needles([Secret(name="A", value=b"12345678"), Secret(name="B", value=b"12345678ab")])
    for cut in range(12):
        assert redacted(b"x12345678aby", [cut], needles) == b"x[secret]y"
        assert redacted(b"x12345678ay", [cut], needles) == b"x[secret]ay"


def test_logs_hold_no_secret_even_where_they_are_cut(tmp_path: Path) -> None:
    for cap in range(20, 90):
        log = CappedLog(tmp_path / "log", cap, Redactor(NEEDLES))
        for byte in b"head " * 3 + VALUE + b" middle " * 10 + VALUE + b" tail":
            log.write(bytes([byte]))
        log.close()
        found = (tmp_path / "log").read_bytes()
        assert VALUE[:8] not in found
        assert VALUE[-8:] not in found
