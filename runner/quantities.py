"""Durations, sizes and CPUs as people write them <-> the integers that records hold.

Exact: a value that is no whole number of milliseconds, bytes or thousandths of a CPU is refused
rather than rounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.canonical import MAX_SAFE_INTEGER
from runner.errors import ManifestError, Where

#: Longest duration: 30 days. Beyond it, timers of the platform overflow.
MAX_DURATION_MS = 30 * 24 * 3_600_000
MAX_CPUS_MILLI = 4_096_000

_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_BINARY = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_DECIMAL = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3, "kB": 10**3}
_BYTES = {**_BINARY, **_DECIMAL, "B": 1}

_NUMBER = r"[0-9]{1,16}(?:\.[0-9]{1,9})?"
_PART = re.compile(rf"({_NUMBER})(ms|h|m|s)")
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|h|m|s))+")
_SIZE = re.compile(rf"({_NUMBER}) ?({'|'.join(_BYTES)})?")
_NANO = 10**9  # numbers are read with nine decimals, as integers: no rounding anywhere


@dataclass(frozen=True, slots=True)
class _Range:
    what: str
    most: int
    most_text: str
    grain: str

    def whole(self, value: object, nano: int, where: Where | None) -> int:
        """Return ``nano`` / 10**9 when that is a whole number from 1 to ``most``."""
        if nano <= 0:
            raise _bad(self.what, value, "write a value above 0", where)
        if nano % _NANO:
            raise _bad(self.what, value, f"write a whole number of {self.grain}", where)
        if nano > self.most * _NANO:
            raise _bad(self.what, value, f"write at most {self.most_text}", where)
        return nano // _NANO


_DURATION_RANGE = _Range("duration", MAX_DURATION_MS, "720h", "milliseconds")
_SIZE_RANGE = _Range("size", MAX_SAFE_INTEGER, "8191TiB", "bytes")
_CPUS_RANGE = _Range("number of CPUs", MAX_CPUS_MILLI, "4096", "thousandths")


def parse_duration_ms(value: object, where: Where | None = None) -> int:
    """Return milliseconds of ``30m``, ``1.5h``, ``1h30m``, ``500ms``.

    Units descend and occur once. A number without a unit is refused: nobody can see what it means.
    """
    text = value if isinstance(value, str) else ""
    if not _DURATION.fullmatch(text):
        raise _bad("duration", value, _duration_fix(value), where)
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    if units != [unit for unit in _MS if unit in units]:
        raise _bad("duration", value, "write larger units first and each once: 1h30m", where)
    return _DURATION_RANGE.whole(
        value, sum(_nano(number) * _MS[unit] for number, unit in parts), where
    )


def parse_size_bytes(value: object, where: Where | None = None) -> int:
    """Return bytes of ``4GiB`` (1024s), ``4GB`` (1000s), ``512B`` or a plain integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        nano = value * _NANO
    elif not isinstance(value, str) or not (found := _SIZE.fullmatch(value)):
        raise _bad("size", value, _size_fix(value), where)
    else:
        nano = _nano(found[1]) * _BYTES[found[2] or "B"]
    return _SIZE_RANGE.whole(value, nano, where)


def parse_cpus_milli(value: object, where: Where | None = None) -> int:
    """Return thousandths of a CPU of a number such as 2 or 0.5."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
        # NaN and Infinity, too: no comparison holds for them.
        raise _bad("number of CPUs", value, "write a number such as 2 or 0.5", where)
    milli = round(value * 1000)
    # The float nearest to a decimal of three places is the one that people mean by it.
    nano = milli * _NANO if milli / 1000 == value else 1
    return _CPUS_RANGE.whole(value, nano, where)


def format_duration_ms(milliseconds: int) -> str:
    """Return ``1h30m``, ``30m``, ``1s500ms``, ``0s``; ``parse_duration_ms`` gives it back."""
    text, rest = "", milliseconds
    for unit, factor in _MS.items():
        count, rest = divmod(rest, factor)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def format_size_bytes(count: int) -> str:
    """Return ``4GiB``, ``1.5GiB``, ``1000B``; exact, so ``parse_size_bytes`` gives it back."""
    for unit, factor in _BINARY.items():
        # Quarters have short exact decimals; other fractions read better in a smaller unit.
        if count >= factor and count * 4 % factor == 0:
            return f"{_decimal(count, factor)}{unit}"
    return f"{count}B"


def format_cpus_milli(milli: int) -> str:
    """Return ``2`` or ``0.5``."""
    return _decimal(milli, 1000)


def format_limit(field_name: str, value: int) -> str:
    """Return one limit as people write it; the unit is the end of its field name."""
    if field_name.endswith("_ms"):
        return format_duration_ms(value)
    if field_name.endswith("_bytes"):
        return format_size_bytes(value)
    return format_cpus_milli(value) if field_name.endswith("_milli") else str(value)


def _decimal(count: int, unit: int) -> str:
    whole, rest = divmod(count, unit)
    return f"{whole}.{rest * 1000 // unit:03d}".rstrip("0").rstrip(".")


def _nano(number: str) -> int:
    whole, _, decimals = number.partition(".")
    return int(whole + decimals.ljust(9, "0"))


def _duration_fix(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"add a unit: {value}s, {value}m or {value}h"
    return "write a number with ms, s, m or h: 500ms, 90s, 30m, 1h30m"


def _size_fix(value: object) -> str:
    if isinstance(value, str) and (
        found := re.fullmatch(r"([0-9.]+) ?([kmgt])(i?b)?", value, re.I)
    ):
        letter = found[2].upper()
        return f"write {found[1]}{letter}iB (1024s) or {found[1]}{letter}B (1000s)"
    return "write a number with KiB, MiB, GiB or TiB (or KB, MB, GB, TB), or plain bytes"


def _bad(what: str, value: object, fix: str, where: Where | None) -> ManifestError:
    code = {"duration": "duration", "size": "size"}.get(what, "cpus")
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return ManifestError(f"manifest.bad-{code}", f"{shown} is no {what}", fix=fix, where=where)
