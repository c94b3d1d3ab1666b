"""Random damage to archives and documents: refused with an expected error, never a crash."""

from __future__ import annotations

import gzip
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.bundle import dsse, ustar
from runner.bundle.archive import export_archive, import_archive
from runner.bundle.manifest import parse_manifest
from runner.bundle.read import open_bundle
from runner.bundle.statement import parse_statement
from runner.errors import BundleError, StorageError
from tests.unit.bundle_files import KEY, PROTOCOL_ID, TRUST, seal

LIMITS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,  # the same examples everywhere: a failure is found here or nowhere
    suppress_health_check=[HealthCheck.too_slow],
)


@cache
def good() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        bundle = seal(Path(folder) / "out").path
        with open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
            return export_archive(view, Path(folder) / "a.tar").read_bytes()


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Cut, insert, repeat, overwrite or move pieces of the good archive, by blocks or bytes."""
    data = bytearray(good())
    for _ in range(draw(st.integers(1, 3))):
        unit = draw(st.sampled_from([1, 512]))
        start = draw(st.integers(0, len(data) // unit)) * unit
        length = draw(st.integers(1, 8)) * unit
        kind = draw(st.sampled_from(["cut", "repeat", "overwrite", "insert", "move", "zero"]))
        piece = bytes(data[start : start + length])
        if kind == "cut":
            del data[start : start + length]
        elif kind == "repeat":
            data[start:start] = piece
        elif kind == "overwrite":
            data[start : start + length] = draw(st.binary(min_size=1, max_size=length))
        elif kind == "insert":
            data[start:start] = draw(st.binary(min_size=1, max_size=64))
        elif kind == "move":
            del data[start : start + length]
            to = draw(st.integers(0, len(data) // unit)) * unit
            data[to:to] = piece
        else:
            data[start : start + length] = bytes(len(piece))
    return bytes(data)


def attempt(data: bytes) -> bool:
    """Import; True when it was accepted. Anything but an expected error fails the test."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.tar").write_bytes(data)
        try:
            import_archive(folder / "a.tar", folder / "out", trust=TRUST)
        except (BundleError, StorageError) as error:
            assert error.where is not None
            assert [path.name for path in folder.iterdir()] == ["a.tar"]
            return False
        return True


@LIMITS
@given(mutations())
def test_only_the_archive_itself_is_accepted(data: bytes) -> None:
    assert attempt(data) is (data == good())


@LIMITS
@given(mutations())
def test_the_same_inside_gzip(data: bytes) -> None:
    assert attempt(gzip.compress(data, 1)) is (data == good())


@LIMITS
@given(st.integers(0, 2**32), st.binary(min_size=1, max_size=40))
def test_damaged_gzip_is_refused_or_harmless(place: int, piece: bytes) -> None:
    zipped = bytearray(gzip.compress(good(), 6, mtime=0))
    start = place % len(zipped)
    zipped[start : start + len(piece)] = piece
    if attempt(bytes(zipped)):  # only the header's own notes (time, flags of speed) are free
        assert gzip.decompress(zipped) == good()
        assert start < 10


@LIMITS
@given(st.binary(max_size=2_000))
def test_noise_is_no_archive(data: bytes) -> None:
    assert attempt(data) is False


@LIMITS
@given(st.binary(max_size=300))
def test_noise_is_no_document(data: bytes) -> None:
    for parse in (parse_manifest, parse_statement):
        with pytest.raises(BundleError):
            parse(data)
    with pytest.raises(BundleError):
        dsse.verify(data, [KEY.public], file="x")


@LIMITS
@given(
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}(/[a-z0-9][a-z0-9._-]{0,20}){0,3}", fullmatch=True),
    st.integers(0, ustar.MAX_SIZE),
)
def test_headers_are_blocks_that_say_what_went_in(path: str, size: int) -> None:
    header = ustar.header(path, size)
    assert len(header) == ustar.BLOCK
    assert ustar.claimed_size(header) == size
    assert header[:100].rstrip(b"\0").decode() == path
    assert (size + ustar.padding(size)) % ustar.BLOCK == 0
