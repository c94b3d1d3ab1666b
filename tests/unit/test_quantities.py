"""Durations, sizes and CPUs: tables of what people write, and round trips."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.canonical import MAX_SAFE_INTEGER
from runner.errors import ManifestError, Where
from runner.quantities import (
    MAX_CPUS_MILLI,
    MAX_DURATION_MS,
    format_cpus_milli,
    format_duration_ms,
    format_limit,
    format_size_bytes,
    parse_cpus_milli,
    parse_duration_ms,
    parse_size_bytes,
)

PLACE = Where(file="m.yaml", line=3, column=7)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30m", 1_800_000),
        ("5s", 5_000),
        ("500ms", 500),
        ("2h", 7_200_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1h0.5s250ms", 3_600_750),
        ("0.001s", 1),
        ("720h", MAX_DURATION_MS),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (30, "30s, 30m or 30h"),
        ("30", "with ms, s, m or h"),
        ("30 m", "with ms, s, m or h"),
        ("30min", "with ms, s, m or h"),
        ("30M", "with ms, s, m or h"),
        ("-5s", "with ms, s, m or h"),
        ("1d", "with ms, s, m or h"),
        ("", "with ms, s, m or h"),
        (".5s", "with ms, s, m or h"),
        ("5s\n", "with ms, s, m or h"),
        ("٣s", "with ms, s, m or h"),
        (None, "with ms, s, m or h"),
        (True, "with ms, s, m or h"),
        ("30m1h", "larger units first"),
        ("1h1h", "larger units first"),
        ("0s", "above 0"),
        ("0.5ms", "whole number of milliseconds"),
        ("0.0001s", "whole number of milliseconds"),
        ("721h", "at most 720h"),
        ("9999999999999999h", "at most 720h"),
    ],
)
def test_refused_durations(value: object, fix: str) -> None:
    refused(parse_duration_ms, value, "manifest.bad-duration", fix)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("4GiB", 4 << 30),
        ("1KiB", 1024),
        ("2TiB", 2 << 40),
        ("1.5MiB", 1_572_864),
        ("4GB", 4_000_000_000),
        ("1kB", 1000),
        ("1KB", 1000),
        ("3TB", 3_000_000_000_000),
        ("1 GiB", 1 << 30),
        ("512B", 512),
        ("512", 512),
        (1, 1),
        (MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
    ],
)
def test_sizes(value: object, count: int) -> None:
    assert parse_size_bytes(value) == count


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("4G", "4GiB (1024s) or 4GB (1000s)"),
        ("4g", "4GiB (1024s) or 4GB (1000s)"),
        ("512mb", "512MiB (1024s) or 512MB (1000s)"),
        ("4gib", "4GiB"),
        ("4GiBs", "KiB, MiB, GiB or TiB"),
        ("-1GiB", "KiB, MiB, GiB or TiB"),
        ("lots", "KiB, MiB, GiB or TiB"),
        ("1e9", "KiB, MiB, GiB or TiB"),
        (1.5, "KiB, MiB, GiB or TiB"),
        (True, "KiB, MiB, GiB or TiB"),
        (None, "KiB, MiB, GiB or TiB"),
        (0, "above 0"),
        (-1, "above 0"),
        ("0GiB", "above 0"),
        ("0.3B", "whole number of bytes"),
        ("0.0001KiB", "whole number of bytes"),
        (MAX_SAFE_INTEGER + 1, "at most 8191TiB"),
        ("8192TiB", "at most 8191TiB"),
    ],
)
def test_refused_sizes(value: object, fix: str) -> None:
    refused(parse_size_bytes, value, "manifest.bad-size", fix)


@pytest.mark.parametrize(
    ("value", "milli"),
    [(1, 1000), (0.5, 500), (0.1, 100), (2.001, 2001), (0.001, 1), (4096, MAX_CPUS_MILLI)],
)
def test_cpus(value: object, milli: int) -> None:
    assert parse_cpus_milli(value) == milli


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (0, "above 0"),
        (-1, "above 0"),
        (1 / 3, "whole number of thousandths"),
        (0.0001, "whole number of thousandths"),
        (4096.5, "at most 4096"),
        (float("nan"), "number such as"),
        (float("inf"), "number such as"),
        (10**400, "number such as"),
        ("2", "number such as"),
        (True, "number such as"),
        (None, "number such as"),
    ],
)
def test_refused_cpus(value: object, fix: str) -> None:
    refused(parse_cpus_milli, value, "manifest.bad-cpus", fix)


def refused(
    parse: Callable[[object, Where | None], int], value: object, code: str, fix: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(value, PLACE)
    assert caught.value.code == code
    assert fix in caught.value.fix
    assert caught.value.where == PLACE
    assert len(caught.value.message) < 100


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("wall_ms", 1_800_000, "30m"),
        ("wall_ms", 5_400_000, "1h30m"),
        ("grace_ms", 1_500, "1s500ms"),
        ("memory_bytes", 2 << 30, "2GiB"),
        ("memory_bytes", 1_610_612_736, "1.5GiB"),
        ("memory_bytes", 1_342_177_280, "1.25GiB"),
        ("log_bytes", 1000, "1000B"),
        ("log_bytes", 1025, "1025B"),
        ("cpus_milli", 500, "0.5"),
        ("cpus_milli", 2000, "2"),
        ("cpus_milli", 10, "0.01"),
        ("pids", 128, "128"),
        ("output_files", 1000, "1000"),
    ],
)
def test_limits_for_people(field: str, value: int, text: str) -> None:
    assert format_limit(field, value) == text


def test_no_time_is_zero_seconds() -> None:
    assert format_duration_ms(0) == "0s"


@given(st.integers(1, MAX_DURATION_MS))
def test_durations_round_trip(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration_ms(milliseconds)) == milliseconds


@given(
    st.integers(1, MAX_SAFE_INTEGER)
    | st.builds(lambda n, bits: n << bits, st.integers(1, 4095), st.integers(0, 40))
)
def test_sizes_round_trip(count: int) -> None:
    assert parse_size_bytes(format_size_bytes(count)) == count


@given(st.integers(1, MAX_CPUS_MILLI))
def test_cpus_round_trip(milli: int) -> None:
    assert parse_cpus_milli(float(format_cpus_milli(milli))) == milli


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.none()))
def test_any_value_is_a_quantity_or_an_error(value: object) -> None:
    for parse in (parse_duration_ms, parse_size_bytes, parse_cpus_milli):
        try:
            assert 1 <= parse(value) <= MAX_SAFE_INTEGER
        except ManifestError as error:
            assert error.fix
