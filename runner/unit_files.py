"""The open files of one attempt at a unit: folders that are watched, logs that are written."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from runner.logs import CappedLog
from runner.outwatch import OutputWatch, RowCounter
from runner.parts import storage_error
from runner.request import UnitRequest
from runner.secret_scan import Redactor

#: A cache may hold as many bytes as the output, and this many files.
MAX_CACHE_FILES = 100_000


class UnitFiles:
    """The open files of an attempt: what is watched, and what is written."""

    def __init__(self, request: UnitRequest, closing: ExitStack) -> None:
        """Raises ``StorageError`` when one of them cannot be opened."""
        limits = request.limits
        folders = {"/out": (request.out_dir, limits.output_files)}
        if request.cache_dir is not None:
            folders["/cache"] = (request.cache_dir, MAX_CACHE_FILES)
        self.watches: dict[str, OutputWatch] = {}
        try:
            for name, (folder, files) in folders.items():
                watch = OutputWatch(folder, max_bytes=limits.output_bytes, max_files=files)
                closing.callback(watch.close)
                self.watches[name] = watch
            self.rows = RowCounter(request.out_dir)
            closing.callback(self.rows.close)
            self.stdout = CappedLog(request.stdout_log, limits.log_bytes, _redactor(request))
            closing.callback(self.stdout.close)
            self.stderr = CappedLog(request.stderr_log, limits.log_bytes, _redactor(request))
            closing.callback(self.stderr.close)
        except OSError as error:
            raise storage_error(error) from error

    @property
    def growing(self) -> bool:
        """Whether much is being written."""
        return any(watch.growing for watch in self.watches.values())

    def tick(self) -> tuple[str, str] | None:
        """One bounded look; (folder, cap) when a cap is passed."""
        for name, watch in self.watches.items():
            if (cap := watch.tick()) is not None:
                return name, cap
        return None


def _redactor(request: UnitRequest) -> Redactor | None:
    return None if request.needles is None else Redactor(request.needles)


def free_bytes(folder: Path) -> int:
    """Space for us on the folder's disk; plenty where that cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return found.f_bavail * found.f_frsize
