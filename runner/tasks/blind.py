"""How every task writes a method's input folder: new files, read-only, hashed while written."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from runner.datasets.lines import FileDigest
from runner.errors import StorageError, Where

FILE_MODE, FOLDER_MODE = 0o444, 0o555
_WRITE_BLOCK = 1 << 20


def make_folder(folder: Path) -> None:
    """Make a new folder that only we can enter until it is finished; ``StorageError``."""
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        refuse_input(folder, error)


def write_file(path: Path, name: str, lines: Iterable[bytes]) -> FileDigest:
    """Write a new file and say what it holds; mode 0444 whatever the umask says."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("xb", buffering=_WRITE_BLOCK) as stream:
            for line in lines:
                digest.update(line)
                size += len(line)
                stream.write(line)
            os.fchmod(stream.fileno(), FILE_MODE)
    except OSError as error:
        refuse_input(path, error)
    return FileDigest(name=name, sha256=digest.hexdigest(), size=size)


def share_file(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system cannot link."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        try:
            shutil.copyfile(source, target, follow_symlinks=False)
            target.chmod(FILE_MODE)
        except OSError as error:
            refuse_input(target, error)


def refuse_input(path: Path, error: OSError) -> NoReturn:
    """Raise ``StorageError`` for an input that cannot be written."""
    raise StorageError(
        "storage.unwritable",
        f"cannot write the inputs: {error.strerror}",
        fix="name an output folder that you may write to and that has room",
        where=Where(file=str(path)),
    ) from error
