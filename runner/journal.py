"""What a run has done so far, one fsynced line a step, so that a killed run can be resumed.

``journal.jsonl``: a header that names the plan, then ``started`` and ``finished`` for each unit. A
line counts once it ends in LF; what a kill left of the last one is cut off. Whoever holds the file
locked owns the folder around it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.canonical import canonical_bytes, digest_of
from runner.clock import Clock, SystemClock
from runner.errors import BundleError, StorageError, Where
from runner.model import Outcome, Plan, Unit, UnitOutcome
from runner.parts import storage_error, sync_folder
from runner.plan_document import plan_document
from runner.records import outcome_from_record, outcome_record
from runner.rows.faults import RowRefused
from runner.strict_json import strict_loads

JOURNAL_SCHEMA = "sealbench/journal/v1"
#: Not the method's doing, so it is tried again; any other outcome stands unless retries are asked.
RERUN = frozenset({Outcome.ENGINE_ERROR, Outcome.CANCELLED, Outcome.NOT_STARTED})
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_START_OVER = "remove the folder to start over, or choose another output folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a journal tells. ``finished`` holds the outcomes that stand, by unit id;
    ``interrupted`` the units that began and did not end."""

    started: str | None = None
    finished: Mapping[str, UnitOutcome] = field(default_factory=dict)
    interrupted: frozenset[str] = frozenset()


def resume(lines: bytes, plan: Plan, *, retry_failed: bool = False, name: str = "") -> Progress:
    """Pure: read whole lines of a journal against the plan that it must belong to.

    The last word on a unit counts; a unit that was begun again has no outcome until it ends, for
    its files are of neither attempt. Raises ``StorageError`` for another plan's journal and for
    lines that no run wrote.
    """
    units = {unit.unit_id: unit for unit in plan.units}
    started: str | None = None
    ended: dict[str, UnitOutcome] = {}
    begun: set[str] = set()
    for number, line in enumerate(lines.split(b"\n")[:-1], 1):
        where = Where(file=name, line=number)
        entry = _entry(line, where)
        if number == 1:
            started = _check_header(entry, plan, where)
        elif entry.get("event") == "started" and entry.get("unit_id") in units:
            begun.add(entry["unit_id"])
            ended.pop(entry["unit_id"], None)
        elif entry.get("event") == "finished":
            outcome = _outcome(entry.get("outcome"), units, where)
            ended[outcome.unit.unit_id] = outcome
            begun.discard(outcome.unit.unit_id)
        else:
            raise _damaged("it is no step of this run", where)
    finished = {unit_id: found for unit_id, found in ended.items() if _stands(found, retry_failed)}
    return Progress(started=started, finished=finished, interrupted=frozenset(begun))


def _stands(outcome: UnitOutcome, retry_failed: bool) -> bool:
    if retry_failed:
        return outcome.outcome is Outcome.OK
    return outcome.outcome not in RERUN


class Journal:
    """An open, locked journal: a context manager, and safe in several threads."""

    def __init__(self, path: Path, descriptor: int, progress: Progress, clock: Clock) -> None:
        self._path, self._descriptor, self._clock = path, descriptor, clock
        self._lock = threading.Lock()
        self.started = progress.started or clock.utc_stamp()
        self.finished = progress.finished
        self.interrupted = progress.interrupted

    @classmethod
    def open(
        cls, path: Path, plan: Plan, *, retry_failed: bool = False, clock: Clock | None = None
    ) -> Self:
        """Begin a journal, or resume the one of an interrupted run of the same plan.

        Raises ``StorageError`` when another process holds it, when it is of another plan or
        damaged, and when the disk fails.
        """
        try:
            descriptor = os.open(path, _FLAGS, 0o644)
        except OSError as error:
            raise storage_error(error) from error
        try:
            _lock(descriptor, path)
            lines = _whole_lines(descriptor)
            progress = resume(lines, plan, retry_failed=retry_failed, name=str(path))
            os.ftruncate(descriptor, len(lines))
            journal = cls(path, descriptor, progress, clock or SystemClock())
            if progress.started is None:
                journal._append({**_identity(plan), "started": journal.started})
                sync_folder(path.parent)
        except OSError as error:
            os.close(descriptor)
            raise storage_error(error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def unit_started(self, unit: Unit) -> None:
        """Call before anything of the unit is touched."""
        stamp = self._clock.utc_stamp()
        self._append({"event": "started", "unit_id": unit.unit_id, "at": stamp})

    def unit_finished(self, outcome: UnitOutcome) -> None:
        """Call when the unit's rows and logs are durable: this line makes them count."""
        self._append({"event": "finished", "outcome": outcome_record(outcome)})

    def close(self) -> None:
        """Give the lock back; callable twice."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, entry: Mapping[str, object]) -> None:
        line = canonical_bytes(entry) + b"\n"
        with self._lock:
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                os.fsync(self._descriptor)
            except OSError as error:
                # Half a line would swallow the next one.
                os.ftruncate(self._descriptor, end)
                raise storage_error(error) from error


def refuse_if_in_use(path: Path) -> None:
    """Raise ``StorageError`` when a living process holds the journal at ``path``.

    For those who want to remove the folder; absent is fine.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error) from error
    try:
        _lock(descriptor, path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            "storage.in-use",
            f"another run is at work in {path.parent}",
            fix="wait until it ends, or choose another output folder",
        ) from error


def _whole_lines(descriptor: int) -> bytes:
    """All up to the last LF. A kill leaves at most half a line behind it."""
    data, position = [], 0
    while block := os.pread(descriptor, 1 << 20, position):
        data.append(block)
        position += len(block)
    whole = b"".join(data)
    return whole[: whole.rfind(b"\n") + 1]


def _identity(plan: Plan) -> dict[str, str]:
    return {
        "event": "run",
        "schema": JOURNAL_SCHEMA,
        "run_id": plan.run_id,
        "plan": digest_of(plan_document(plan)),
    }


def _check_header(entry: Mapping[str, Any], plan: Plan, where: Where) -> str:
    expected = _identity(plan)
    if entry.get("schema") != JOURNAL_SCHEMA or not isinstance(entry.get("started"), str):
        raise _damaged("it is no header of a journal that this version reads", where)
    for name, value in expected.items():
        if entry.get(name) != value:
            raise StorageError(
                "storage.other-run",
                f"the folder holds an interrupted run with another {name.replace('_', ' ')}",
                fix=_START_OVER,
                where=where,
            )
    return str(entry["started"])


def _entry(line: bytes, where: Where) -> dict[str, Any]:
    try:
        entry = strict_loads(line)
    except RowRefused as error:
        raise _damaged(error.message, where) from error
    if not isinstance(entry, dict):
        raise _damaged("it is no object", where)
    return entry


def _outcome(record: object, units: Mapping[str, Unit], where: Where) -> UnitOutcome:
    from runner import schemas

    if not isinstance(record, dict) or not schemas.is_valid("outcome", record):
        raise _damaged("its outcome does not fit the schema", where)
    try:
        return outcome_from_record(record, units, where)
    except BundleError as error:
        raise _damaged(error.message, where) from error


def _damaged(why: str, where: Where) -> StorageError:
    return StorageError(
        "storage.damaged-journal",
        f"the journal of the interrupted run is damaged: {why}",
        fix=_START_OVER,
        where=where,
    )
