"""Every error a user can meet: one class per exit code, each with a code, a message and a fix.

A code such as ``manifest.duplicate-key`` is stable and machine-readable; the message says what
is wrong and where; the fix says what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in an input: ``file:line:column`` for text, a JSON path for data."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    json_path: str | None = None

    def __str__(self) -> str:
        parts = [self.file or ""]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        text = ":".join(part for part in parts if part)
        if self.json_path:
            text = f"{text} at {self.json_path}" if text else self.json_path
        return text


class SealbenchError(Exception):
    """Base of all expected errors; never raised itself."""

    exit_code: ClassVar[int] = 70
    kind: ClassVar[str] = "internal"

    def __init__(self, code: str, message: str, *, fix: str, where: Where | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.where = where

    def __str__(self) -> str:
        place = str(self.where) if self.where else ""
        head = f"{place}: {self.message}" if place else self.message
        return f"{head} [{self.code}]"

    def as_dict(self) -> dict[str, object]:
        """The form that ``--json`` prints."""
        where = self.where
        return {
            "error": self.kind,
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
            "exit_code": self.exit_code,
            "where": None
            if where is None
            else {
                "file": where.file,
                "line": where.line,
                "column": where.column,
                "json_path": where.json_path,
            },
        }


class UsageError(SealbenchError):
    """The command line is wrong."""

    exit_code = 2
    kind = "usage"


class ManifestError(SealbenchError):
    """A run or freeze manifest is malformed or asks for something impossible."""

    exit_code = 3
    kind = "manifest"


class DataError(SealbenchError):
    """A dataset is missing, malformed or not the one that was frozen."""

    exit_code = 4
    kind = "data"


class ProtocolError(SealbenchError):
    """A protocol file is malformed, or the run does not fit it."""

    exit_code = 5
    kind = "protocol"


class ImageError(SealbenchError):
    """An image is not pinned, not present, of another platform, or not the pinned one."""

    exit_code = 6
    kind = "image"


class EngineError(SealbenchError):
    """No container engine answers, or it failed."""

    exit_code = 7
    kind = "engine"


class LimitError(SealbenchError):
    """The host cannot enforce a limit and the manifest does not waive it."""

    exit_code = 8
    kind = "limit"


class StorageError(SealbenchError):
    """An output folder is unwritable, occupied or full."""

    exit_code = 9
    kind = "storage"


class KeyError_(SealbenchError):
    """A signing key or a trust file is missing, malformed or too openly readable."""

    exit_code = 10
    kind = "key"


class BundleError(SealbenchError):
    """A bundle is malformed, tampered with, or signed by nobody we trust."""

    exit_code = 11
    kind = "bundle"


#: Exit codes that are results rather than errors.
EXIT_OK = 0
EXIT_UNEXPECTED_OUTCOMES = 20  # sealed, but some unit's outcome was not the expected one
EXIT_CANCELLED = 21  # interrupted; what there was is sealed as incomplete
EXIT_NOT_READY = 22  # `doctor` found something missing
EXIT_DIFFERENT = 23  # `reproduce`: executed again, and it came out different
EXIT_NOT_COMPARABLE = 24  # `reproduce`, `drift`: one of the two was not measured
EXIT_DRIFT = 25  # `drift`: the baseline does not come out any more
