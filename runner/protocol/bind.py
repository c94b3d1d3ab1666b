"""Attach data to a protocol: load each dataset, hash it again, and refuse any change.

This happens before every run and every recomputation, because a protocol id is a promise about
bytes that lie outside the repository.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, cast

from runner.canonical import HASH_CHUNK
from runner.datasets.lines import FileDigest, check_name, open_inside
from runner.errors import DataError, Where
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.load import Protocol, ProtocolDataset
from runner.protocol.splits import ids_sha256
from runner.tasks import task_module
from runner.tasks.api import Dataset

_RESTORE = (
    "restore the published files under the data root, or freeze a new version of the benchmark"
)

#: Codes of errors that the published data would mend.
_ABSENT = frozenset({"data.missing", "data.no-root"})

#: ``sealbench data NAME`` makes the layout of what is published at an address with this in it.
_LAID_OUT = {
    "irplag": "oscarkarnalim/sourcecodeplagiarismdataset",
    "reviewer-gold": "niharshah/goldstandard-reviewer-paper-match",
}

#: Formats whose digests are of tables in canonical order, which only their loader can take.
ROW_ORDER_FREE = frozenset({"code-pairs", "code-retrieval"})


def bind(protocol: Protocol, data_root: Path | None) -> dict[str, Dataset]:
    """Load every dataset of a protocol, in its order, and prove that it is the frozen one.

    A dataset lies in ``<data_root>/<name>/``; without a data root, where the local form of the
    protocol says. Raises ``DataError`` for absent, malformed or changed data; a changed file is
    named with both digests.
    """
    datasets = {}
    for entry in protocol.datasets:
        below = names_places(entry.document)
        with says_where_from(entry):
            folder, root = locate(entry.name, data_root, protocol.roots, below_root=below)
            datasets[entry.name] = bind_dataset(entry, folder, root, protocol.calibration)
    return datasets


@contextmanager
def says_where_from(entry: ProtocolDataset) -> Iterator[None]:
    """Make errors about absent data say where they are published and what belongs where.

    Whoever has none yet has only the protocol, and it holds both.
    """
    try:
        yield
    except DataError as error:
        if error.code not in _ABSENT:
            raise
        place = "<data root>/" if names_places(entry.document) else f"<data root>/{entry.name}/"
        names = ", ".join(file.name for file in entry.files)
        more = " with the sources that files.csv lists" if entry.format in ROW_ORDER_FREE else ""
        url, revision = entry.source["url"], entry.source["revision"]
        how = f"put {names}{more} into {place}"
        if (laid := laid_out_by(entry)) is not None:
            how = f"unpack it and lay it out: `sealbench data {laid} FOLDER --out DIR`"
        raise DataError(
            error.code,
            error.message,
            fix=f"{entry.name} is published at {url} (revision {revision}); {how}; "
            "then pass --data-root DIR (make: DATA_ROOT=DIR); docs/data.md says more",
            where=error.where,
        ) from error


def laid_out_by(entry: ProtocolDataset) -> str | None:
    """Return which ``sealbench data`` command makes the layout of a dataset from what is published;
    None where the published files lie as they are read."""
    url = str(entry.source["url"])
    return next((name for name, published in _LAID_OUT.items() if published in url), None)


def names_places(entry: Mapping[str, object]) -> bool:
    """Tell whether an entry says itself where its files lie below the data root.

    Versions of one collection share files, so they lie in no folder of their own.
    """
    return "texts" in entry or "ratings" in entry


def locate(
    name: str,
    data_root: Path | None,
    roots: Mapping[str, Path] | None = None,
    *,
    below_root: bool = False,
) -> tuple[Path, Path]:
    """Return (the dataset's folder, the root that none of its files may leave).

    With ``below_root`` the folder is the data root itself. A dataset named ``a-b`` may lie in
    ``a/b`` too, beside other datasets of collection ``a``.
    """
    check_name(name, "dataset")
    if data_root is not None:
        if not data_root.is_dir():
            raise DataError(
                "data.missing",
                "no such folder, and it is the data root",
                fix="name the folder that holds <dataset name>/ folders",
                where=Where(file=str(data_root)),
            )
        return (data_root if below_root else _folder_of(name, data_root)), data_root
    if roots and name in roots:
        return roots[name], roots[name]
    raise DataError(
        "data.no-root",
        f"nothing says where dataset {name} lies",
        fix=f"put it at <data root>/{name}/ and pass --data-root DIR (make: DATA_ROOT=DIR), "
        "or set data_root in the run manifest",
    )


def _folder_of(name: str, data_root: Path) -> Path:
    own = data_root / name
    if own.exists():
        return own
    parts = name.split("-")
    splits = range(1, len(parts))
    nested = [data_root / "-".join(parts[:at]) / "-".join(parts[at:]) for at in splits]
    return next((folder for folder in nested if folder.is_dir()), own)


def bind_dataset(
    entry: ProtocolDataset, folder: Path, root: Path, calibration: int | None
) -> Dataset:
    """Load one dataset and compare all that the protocol says of it."""
    task = task_module(entry.task)
    try:
        dataset = cast(Dataset, task.load(entry.name, entry.document, folder, root))
    except DataError as error:
        if entry.format in ROW_ORDER_FREE:
            raise
        # A damaged file rarely parses. That it changed is the cause; the parse error a symptom.
        found = _hash_files(entry, folder, root)
        if found is None or found == entry.files:
            raise
        _refuse_changed(entry, found, folder, str(error), error)
    content = task.content_of(dataset)
    if dataset.files != entry.files:
        same = content["payload"] == entry.payload
        note = "the content is the same, but line ends or formatting changed" if same else None
        _refuse_changed(entry, dataset.files, folder, note, None)
    # Equal bytes with another content can only mean that the loader itself changed.
    if fingerprint_of(content) != entry.fingerprint:
        _refuse_reading(entry, "fingerprint")
    for name, ids in task.split_ids(dataset, calibration).items():
        if ids_sha256(ids) != entry.splits[name].ids_sha256:
            _refuse_reading(entry, f"split {name}")
    return dataset


def _hash_files(entry: ProtocolDataset, folder: Path, root: Path) -> tuple[FileDigest, ...] | None:
    """Hash a dataset's files without reading them as anything; None if one cannot be read."""
    found = []
    for file in entry.files:
        digest, size = hashlib.sha256(), 0
        try:
            with open_inside(folder / file.name, root, fix=_RESTORE) as stream:
                while block := stream.read(HASH_CHUNK):
                    digest.update(block)
                    size += len(block)
        except DataError:
            return None
        found.append(FileDigest(name=file.name, sha256=digest.hexdigest(), size=size))
    return tuple(found)


def _refuse_changed(
    entry: ProtocolDataset,
    found: tuple[FileDigest, ...],
    folder: Path,
    note: str | None,
    cause: Exception | None,
) -> NoReturn:
    changes = [
        f"{now.name} has sha256 {now.sha256} ({now.size} bytes), frozen was {then.sha256} "
        f"({then.size} bytes)"
        for then, now in zip(entry.files, found, strict=True)
        if then != now
    ]
    first = next(now.name for then, now in zip(entry.files, found, strict=True) if then != now)
    message = f"dataset {entry.name} is not the frozen one: {'; '.join(changes)}"
    raise DataError(
        "data.changed",
        f"{message} ({note})" if note else message,
        fix=_RESTORE,
        where=Where(file=str(folder / first)),
    ) from cause


def _refuse_reading(entry: ProtocolDataset, what: str) -> NoReturn:
    raise DataError(
        "data.read-differently",
        f"dataset {entry.name} has the frozen bytes but another {what}: this version of sealbench "
        "reads it differently from the one that froze it",
        fix="use the version that froze the protocol, or freeze the benchmark again",
    )
