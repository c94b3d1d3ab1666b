"""Model files on this host: which content they are, and whether they may go into a container.

A model is a folder of files, such as a snapshot of a model repository. It is named by the revision
that it was taken from, which nobody can prove from files, and by the digest of its content, which
is checked before a run. Methods see it read-only at ``/models/<name>``. Nothing is ever downloaded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import digest_of, file_sha256
from runner.errors import DataError, Where
from runner.model import MethodPlan, ModelPin, Plan

FILES_SCHEMA = "sealbench/model-files/v1"
MOUNTED = "/models"
MAX_FILES = 10_000
WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model; the name is relative to its folder, with ``/``."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """All files of a model, sorted by name, and their digest."""

    digest: str
    files: tuple[ModelFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def read_model(folder: Path) -> ModelFiles:
    """Hash every file below a folder. The digest is that of canonical JSON of all names, sizes and
    SHA-256s; where the folder lies does not enter it.

    Raises ``DataError`` for a folder that is absent or empty, and for what a container could not
    read: a link that leads out, a file that is not regular or not readable for others.
    """
    files = []
    for path in _paths(folder):
        sha256, size = file_sha256(path)
        files.append(ModelFile(name=path.relative_to(folder).as_posix(), size=size, sha256=sha256))
    if not files:
        raise _error("model-empty", "there are no model files", "give a folder of files", folder)
    ordered = tuple(sorted(files, key=lambda file: file.name))
    document = {
        "schema": FILES_SCHEMA,
        "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in ordered],
    }
    return ModelFiles(digest=digest_of(document), files=ordered)


def _paths(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():
        raise _error("no-model", "there is no such folder", "give the folder of a model", folder)
    inside = folder.resolve()
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if len(found) > MAX_FILES:
        message = f"more than {MAX_FILES} files: this is hardly a model"
        raise _error("model-files", message, "give the folder of one model", folder)
    for path in found:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            # A download cache is full of these. In a container they would lead nowhere.
            message = f"{name} is a link that leads out of the folder"
            raise _error("model-link", message, "copy the model: cp -rL SNAPSHOT FOLDER", folder)
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = f"{name} is no regular file"
            raise _error("model-file", message, "remove it from the folder", folder)
        if os.geteuid() == 0 and not mode & stat.S_IROTH:
            message = f"{name} is not readable for the user that methods run as"
            raise _error("model-unreadable", message, "chmod -R a+rX FOLDER", folder)
    return found


def find_models(plan: Plan, root: Path | None) -> dict[str, Path | None]:
    """Return the folder of every model that a plan names, by name; None where it is absent.

    A model ``NAME`` is at ``<root>/NAME``. Raises ``DataError`` for one that is there and whose
    content is not what the plan says.
    """
    pins = {pin: None for method in plan.methods for pin in method.models}
    found: dict[str, Path | None] = {}
    for pin in pins:
        folder = None if root is None else root.absolute() / pin.name
        present = folder is not None and folder.is_dir()
        found[pin.name] = folder if present else None
        if present and folder is not None:
            _check(pin, folder)
    return found


def _check(pin: ModelPin, folder: Path) -> None:
    digest = read_model(folder).digest
    if digest != pin.digest:
        raise _error(
            "model-changed",
            f"the files of model {pin.name} are {digest}, and the manifest wants {pin.digest}",
            f"get revision {pin.revision} anew; if these files are what is meant, write the digest"
            " that `sealbench models digest FOLDER` prints into the manifest",
            folder,
        )


def lack_of(method: MethodPlan, models: Mapping[str, Path | None]) -> str | None:
    """Return why a method cannot start for want of a model; None if it can."""
    absent = [pin for pin in method.models if models.get(pin.name) is None]
    if not absent:
        return None
    names = ", ".join(f"{pin.name} ({pin.revision[:12]})" for pin in absent)
    return f"model files are not on this host: {names}; see --models-root"


def foreseen(method: MethodPlan, models: Mapping[str, Path | None]) -> bool:
    """Tell whether a method lacks a model and its manifest said that this may be."""
    return WEIGHTS in method.requires and lack_of(method, models) is not None


def _error(code: str, message: str, fix: str, folder: Path) -> DataError:
    return DataError(f"data.{code}", message, fix=fix, where=Where(file=str(folder)))
