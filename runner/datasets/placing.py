"""Write a dataset's folder as a whole or not at all, and never over one that is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import DataError, StorageError, Where


@contextmanager
def placed(
    target: Path, *, fix: str = "choose another --out, or move the folder away"
) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that becomes it when the block ends well.

    ``DataError`` with ``fix`` where something is there already, ``StorageError`` where nothing can
    be written.
    """
    if target.exists():
        raise DataError(
            "data.occupied",
            "the folder is there already, and data are never overwritten",
            fix=fix,
            where=Where(file=str(target)),
        )
    staging = target.with_name(f".{target.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        yield staging
        staging.rename(target)
    except OSError as error:
        raise StorageError(
            "storage.unwritable",
            f"cannot write the data: {error.strerror}",
            fix="choose an --out with room where you may write",
            where=Where(file=str(target)),
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
