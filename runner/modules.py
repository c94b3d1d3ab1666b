"""A submitter's own Python files as part of a method: what they are, and where a bundle has them.

A module is one ``.py`` file or a folder with ``method.py`` in it. It is what its files are: their
names below the folder and their bytes. Where it lies and how a single file is called is no part of
it: that file is ``method.py`` to everybody else. It is read once, without following any link, and
goes from memory into each container and into the bundle, so that no edit gets in between. A bundle
publishes it, for without it nobody could execute the method again.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from runner.canonical import canonical_bytes, digest_of
from runner.errors import BundleError, DataError, Where

if TYPE_CHECKING:
    from runner.manifest import RunManifest
    from runner.model import Plan

SCHEMA = "sealbench/module/v1"
KIND = "module"
MOUNTED = "/module"
ENTRY = "method.py"
INDEX = "module.json"
FOLDER = "modules"
MAX_BYTES = 1 << 20  # of all files together
MAX_FILES = 100  # files and folders
MAX_NAME = 200
#: Text only: what is published must be readable.
SUFFIXES = (".py", ".csv", ".json", ".md", ".toml", ".tsv", ".txt")
#: What Python itself leaves behind; never read, never mounted.
_LEFT_BEHIND = "__pycache__"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\Z")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """One file; the name is relative to the module's folder, with ``/``."""

    name: str
    data: bytes = field(repr=False)

    @property
    def described(self) -> dict[str, object]:
        sha256 = hashlib.sha256(self.data).hexdigest()
        return {"name": self.name, "size": len(self.data), "sha256": sha256}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """All files of a module, sorted by name."""

    files: tuple[ModuleFile, ...]

    @property
    def document(self) -> dict[str, object]:
        """module.json: what the digest is taken of."""
        return {"schema": SCHEMA, "files": [file.described for file in self.files]}

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of the canonical bytes of ``document``."""
        return digest_of(self.document)

    def sealed(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path, bytes) of every file that a bundle has of it, the index first."""
        folder = sealed_folder(self.digest)
        yield f"{folder}/{INDEX}", canonical_bytes(self.document)
        for number, file in enumerate(self.files):
            yield f"{folder}/{sealed_name(number, file.name)}", file.data

    def copy_to(self, folder: Path) -> None:
        """Write the files into a new folder that any user may read; ``OSError``.

        ``ValueError`` where what can be read there afterwards is something else.
        """
        folder.mkdir()
        folder.chmod(0o755)  # whatever the umask says
        for file in self.files:
            path = folder / file.name
            for above in reversed(path.relative_to(folder).parents[:-1]):
                (folder / above).mkdir(exist_ok=True)
                (folder / above).chmod(0o755)
            path.write_bytes(file.data)
            path.chmod(0o444)
        if read_module(folder, below=folder.parent).digest != self.digest:
            raise ValueError("the copy is not what was copied")


def sealed_folder(digest: str) -> str:
    """Return the folder that a bundle has a module in; half a digest fits its paths."""
    return f"{FOLDER}/{digest.removeprefix('sha256:')[:32]}"


def sealed_name(number: int, name: str) -> str:
    """Return how a bundle calls a file: its number, and what its grammar of paths can say of the
    name. The whole name stands in the index."""
    return f"{number:03}-{re.sub('[^a-z0-9._-]', '-', name.lower())[-40:]}"


def problem_of(module: Module) -> tuple[str, str, str] | None:
    """Return (code, message, fix) for files that make no module, or None. Pure."""
    names = [file.name for file in module.files]
    if ENTRY not in names:
        fix = f"call the file with the function score(left, right) {ENTRY}"
        return "module-entry", f"there is no {ENTRY} in the folder", fix
    if len(names) > MAX_FILES or sum(len(file.data) for file in module.files) > MAX_BYTES:
        message = f"a module has at most {MAX_FILES} files and {MAX_BYTES} bytes together"
        return "module-size", message, "leave out what the method does not need, or make an image"
    folders = {str(above) for name in names for above in PurePosixPath(name).parents}
    unread = any(_LEFT_BEHIND in name.split("/") for name in names)
    if unread or len({*names, *folders}) < len(names) + len(folders):
        message = "its files could not lie in one folder, or be read from it"  # a bundle may say so
        return "module-name", message, "give every file a name of its own"
    return next(filter(None, map(_file_problem, module.files)), None)


def _file_problem(file: ModuleFile) -> tuple[str, str, str] | None:
    if _NAME.match(file.name) is None or len(file.name) > MAX_NAME:
        message = f"{file.name[:MAX_NAME]!r} cannot be a file of a module"
        fix = "use letters, digits, '_', '-' and '.', and no hidden files"
        return "module-name", message, fix
    if not file.name.endswith(SUFFIXES):
        message = f"{file.name} is of no kind that a module has"
        fix = f"a module has {', '.join(SUFFIXES)}; make an image for anything else"
        return "module-kind", message, fix
    try:
        problem = "has NUL characters" if "\0" in file.data.decode("utf-8") else None
    except UnicodeDecodeError as error:
        problem = f"is no UTF-8 at byte {error.start + 1}"
    if problem is not None:
        return "module-text", f"{file.name} {problem}", "write it as UTF-8 text"
    return None


def read_module(path: Path, *, below: Path) -> Module:
    """Read a ``.py`` file, or a folder, that lies below another folder; no link is followed.

    Raises ``DataError`` for what is absent, no regular file, a link, or no module.
    """
    try:
        above = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = _step_down(above, path.relative_to(below).parts)
        finally:
            os.close(above)
    except _Refused as refused:
        _refuse(path, "module-file", refused.message, refused.fix)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        fix = "give the path of a .py file, or of a folder with method.py, below the manifest's"
        _refuse(path, "no-module", f"cannot read the module: {reason}", fix)
    module = Module(files=tuple(sorted(found, key=lambda file: file.name)))
    problem = problem_of(module)
    if problem is not None:
        _refuse(path, *problem)
    return module


class _Refused(Exception):
    """Something that a module cannot have. Internal: ends as a ``DataError``."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


def _step_down(above: int, parts: tuple[str, ...]) -> list[ModuleFile]:
    """Open a path a segment at a time, and read what it leads to."""
    descriptor = _open(parts[0], above, parts[0]) if parts else os.dup(above)
    try:
        if len(parts) > 1:
            return _step_down(descriptor, parts[1:])
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            found: list[ModuleFile] = []
            _collect(descriptor, "", found, [0])
            return found
        if not parts[0].endswith(".py"):
            raise _Refused(f"{parts[0]} is no .py file", "give a .py file, or a folder")
        return [ModuleFile(name=ENTRY, data=_read(descriptor, parts[0], MAX_BYTES))]
    finally:
        os.close(descriptor)


def _collect(folder: int, prefix: str, found: list[ModuleFile], seen: list[int]) -> None:
    """Read every file below an open folder; ``seen`` counts what was looked at."""
    for name in sorted(os.listdir(folder)):
        if name == _LEFT_BEHIND:
            continue
        path = prefix + name
        seen[0] += 1
        if seen[0] > MAX_FILES or len(path) > MAX_NAME:
            message = f"more than {MAX_FILES} files and folders, or a name that is too long"
            raise _Refused(message, "name a folder that holds the method and nothing else")
        descriptor = _open(name, folder, path)
        try:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                _collect(descriptor, f"{path}/", found, seen)
            else:
                left = MAX_BYTES - sum(len(file.data) for file in found)
                found.append(ModuleFile(name=path, data=_read(descriptor, path, left)))
        finally:
            os.close(descriptor)


def _open(name: str, above: int, shown: str) -> int:
    if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        message = f"{shown} is a symbolic link, and what it leads to would be published"
        raise _Refused(message, "put a copy of the file there")
    return os.open(name, _FLAGS, dir_fd=above)


def _read(descriptor: int, name: str, most: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _Refused(f"{name} is no regular file", "remove it from the folder")
    with open(os.dup(descriptor), "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        message = f"a module has at most {MAX_BYTES} bytes together; {name} exceeds them"
        raise _Refused(message, "leave out what the method does not need, or make an image")
    return data


def _refuse(path: Path, code: str, message: str, fix: str) -> NoReturn:
    raise DataError(f"data.{code}", message, fix=fix, where=Where(file=str(path)))


def planned_modules(manifest: RunManifest, plan: Plan) -> dict[str, Module]:
    """Return every module of a plan by its digest, read again.

    Raises ``DataError`` for one that was changed since the plan was made.
    """
    paths = {spec.name: spec.module for spec in manifest.methods}
    found: dict[str, Module] = {}
    for method in plan.methods:
        path = paths.get(method.name)
        if method.module is None or path is None or method.module in found:
            continue
        module = read_module(path, below=manifest.path.parent)
        if module.digest != method.module:
            message = f"the module of {method.name} was changed while the run was planned"
            _refuse(path, "module-changed", message, "run again")
        found[method.module] = module
    return found


def load_sealed(digest: str, read: Callable[[str], bytes]) -> Module:
    """Return the module that a bundle has under a digest; ``read`` returns a file's bytes.

    Raises ``BundleError`` unless the files are exactly those of that digest, and whatever ``read``
    raises.
    """
    from runner.bundle.documents import parse_canonical

    folder = sealed_folder(digest)
    place = f"{folder}/{INDEX}"
    index: Mapping[str, Any] = parse_canonical(read(place), kind=KIND, file=place)
    files = []
    for number, entry in enumerate(index["files"]):
        path = f"{folder}/{sealed_name(number, entry['name'])}"
        file = ModuleFile(name=entry["name"], data=read(path))
        if file.described != entry:
            _not_sealed(path, "it is not the file that the index of its module describes")
        files.append(file)
    module = Module(files=tuple(files))
    if module.digest != digest:
        _not_sealed(place, f"the module is {module.digest}, and the plan says {digest}")
    problem = problem_of(module)
    if problem is not None or list(files) != sorted(files, key=lambda file: file.name):
        _not_sealed(place, problem[1] if problem else "its files are out of order")
    return module


def _not_sealed(path: str, message: str) -> NoReturn:
    fix = "get the bundle again from its author"
    raise BundleError("bundle.module", message, fix=fix, where=Where(file=path))
