"""Where a run keeps its files: the result folder, and the working folder that goes away.

``<out>/.work-<run id>/`` holds the journal, inputs, outputs, rows and logs of the units until the
bundle is sealed. It is named after the plan, so an interrupted run finds it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.errors import StorageError, Where
from runner.journal import refuse_if_in_use
from runner.model import Plan, Unit
from runner.parts import storage_error
from runner.purge import purge
from runner.tasks.api import per_query_path

RUNS = Path("runs")
FINAL = "bundle"
JOURNAL = "journal.jsonl"
_WORK, _GONE = ".work-", ".gone-work-"


def short_id(digest: str, length: int = 12) -> str:
    """The first hex digits of ``sha256:<hex>``, for names that people read."""
    return digest.rpartition(":")[2][:length]


def result_folder(plan: Plan, chosen: Path | None, *, suffix: str = "") -> Path:
    """Return the folder for the bundle; ``suffix`` goes behind the name that is chosen here.

    A folder that the user chose is refused when it holds a bundle; else the next free name is
    taken, so that the same command can be run twice and nothing is overwritten.
    """
    if chosen is not None:
        out = chosen.absolute()
        if (out / FINAL).exists():
            raise _occupied(out, chosen)
        return out
    base = (RUNS / f"{plan.name}-{short_id(plan.run_id)}{suffix}").absolute()
    candidates = [base, *(base.with_name(f"{base.name}.{number}") for number in range(2, 10_000))]
    return next(folder for folder in candidates if not (folder / FINAL).exists())


def _occupied(out: Path, chosen: Path) -> StorageError:
    fix = "choose another --out (make: OUT=), or move the bundle away"
    tar = out / f"{FINAL}.tar"
    if not tar.exists():  # a run that was killed between sealing and packing
        fix = f"`sealbench bundle export {chosen / FINAL} {chosen / tar.name}` packs it; or {fix}"
    return StorageError(
        "storage.occupied",
        "the folder holds a bundle already, and bundles are never overwritten",
        fix=fix,
        where=Where(file=str(chosen)),
    )


def abandoned(results: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """What dead runs left in result folders: (work that can be resumed, work half removed)."""
    work: list[Path] = []
    gone: list[Path] = []
    for out in results:
        gone.extend(path for path in out.glob(f"{_GONE}*") if path.is_dir())
        for path in out.glob(f"{_WORK}*"):
            try:
                refuse_if_in_use(path / JOURNAL)
            except StorageError:
                continue
            work.append(path)
    return sorted(work), sorted(gone)


def _discard(folder: Path) -> None:
    """Remove a working folder. It loses its name first: half a folder must never be resumed."""
    dying = folder.with_name(f"{_GONE}{folder.name.removeprefix(_WORK)}-{secrets.token_hex(4)}")
    folder.rename(dying)
    purge(dying)


def stem(unit: Unit) -> str:
    """How a unit's files are called below its method: the dataset, and the repeat if not first."""
    return unit.dataset if unit.repeat == 0 else f"{unit.dataset}.r{unit.repeat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFiles:
    """The files of one unit that outlive its container."""

    rows: Path  # a folder of part files
    stdout: Path
    stderr: Path
    scores: Path
    recording: Path  # what a method with a network recorded

    @property
    def per_query(self) -> Path:
        """What each query came to, where the task writes it."""
        return per_query_path(self.scores)

    def parts(self) -> list[Path]:
        """The part files of the rows, in order; empty when nothing was harvested."""
        return sorted(self.rows.glob("part-*.jsonl")) if self.rows.is_dir() else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The working folder of one run; every path below it is ours alone."""

    out: Path
    folder: Path

    @classmethod
    def open(cls, out: Path, plan: Plan, *, fresh: bool, name: str | None = None) -> Workspace:
        """Make the folders, or find those of an interrupted run of the same plan and ``name``."""
        folder = out / (name or f"{_WORK}{short_id(plan.run_id)}")
        try:
            if fresh and folder.exists():
                refuse_if_in_use(folder / JOURNAL)
                _discard(folder)
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)  # a method's user must pass through, and needs to see no more
            for part in ("in", "out", "scratch", "units", "shared", "cache"):
                (folder / part).mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(
                "storage.unwritable",
                f"cannot use the output folder: {error.strerror}",
                fix="choose a folder that you may write to: --out (make: OUT=)",
                where=Where(file=str(out)),
            ) from error
        return cls(out=out, folder=folder)

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL

    def shared(self, dataset: str) -> Path:
        """A new folder for what all units of a dataset read."""
        folder = self.folder / "shared" / dataset
        purge(folder)
        folder.mkdir()
        return folder

    def files(self, unit: Unit) -> UnitFiles:
        """The lasting files of a unit, in a folder of its own that exists."""
        folder = self.folder / "units" / short_id(unit.unit_id, 32)
        folder.mkdir(exist_ok=True)
        return UnitFiles(
            rows=folder / "rows",
            stdout=folder / "stdout.log",
            stderr=folder / "stderr.log",
            scores=folder / "scores.csv",
            recording=folder / "responses.jsonl",
        )

    def scratch(self, kind: str, unit: Unit) -> Path:
        """The path of a unit's ``in`` or ``out`` folder; emptied of earlier attempts."""
        folder = self.folder / kind / short_id(unit.unit_id, 32)
        if folder.exists():
            purge(folder)
        return folder

    def remove(self) -> None:
        """Remove the working folder, whatever methods put there."""
        try:
            _discard(self.folder)
        except OSError as error:
            raise storage_error(error) from error

    def remove_if_unused(self) -> None:
        """Leave nothing behind when a run was refused before its first unit."""
        if not self.journal.exists():
            purge(self.folder)
            for folder in (self.out, self.out.parent):
                try:
                    folder.rmdir()
                except OSError:
                    return
