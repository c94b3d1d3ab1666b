"""Secrets by reference: where the supervisor finds a value, and the value while it is needed.

A manifest names a file or a variable of the supervisor's environment. The value is read when
everything else of a run was checked, lives in this process's memory, and is handed to a container
as a file. It is never part of a plan, an argument vector, an environment, a record or a log.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import KeyError_, Where

#: Shorter values would be found in anybody's output; longer ones are no keys.
MIN_BYTES, MAX_BYTES = 8, 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Where a secret is: a file or a variable, exactly one of them."""

    name: str
    file: Path | None = None
    env: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret's value; it does not show when this is printed."""

    name: str
    value: bytes = field(repr=False)


def load_secrets(
    refs: Iterable[SecretRef], environ: Mapping[str, str] = os.environ
) -> tuple[Secret, ...]:
    """Read the values; one final line feed of a file is not part of it.

    Raises ``KeyError_`` for one that is missing, readable for others, too short or too long.
    """
    return tuple(Secret(name=ref.name, value=_value(ref, environ)) for ref in refs)


def _value(ref: SecretRef, environ: Mapping[str, str]) -> bytes:
    if ref.file is not None:
        value = _read(ref, ref.file)
        value = value.removesuffix(b"\n").removesuffix(b"\r")
    else:
        text = environ.get(ref.env or "")
        if text is None:
            raise _refusal(ref, "missing", "is not set", f"export {ref.env} before the run")
        value = os.fsencode(text)
    if len(value) < MIN_BYTES:
        problem = f"has fewer than {MIN_BYTES} bytes"
        raise _refusal(ref, "too-short", problem, "give the whole secret")
    if len(value) > MAX_BYTES or b"\0" in value:
        problem = f"has more than {MAX_BYTES} bytes, or a NUL"
        raise _refusal(ref, "too-long", problem, "give a key, not a document")
    return value


def _read(ref: SecretRef, path: Path) -> bytes:
    try:
        # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise _refusal(ref, "missing", problem, "put the secret into that file") from error
    with open(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refusal(ref, "missing", "is no regular file", "name the file with the secret")
        if found.st_mode & 0o077:
            problem = f"is readable for others (mode {stat.S_IMODE(found.st_mode):04o})"
            raise _refusal(ref, "too-open", problem, "chmod 600 it")
        return stream.read(MAX_BYTES + 3)


def _refusal(ref: SecretRef, code: str, problem: str, fix: str) -> KeyError_:
    place = f"file {ref.file}" if ref.file is not None else f"variable {ref.env}"
    message = f"secret {ref.name}: its {place} {problem}"
    where = None if ref.file is None else Where(file=str(ref.file))
    return KeyError_(f"secret.{code}", message, fix=fix, where=where)
