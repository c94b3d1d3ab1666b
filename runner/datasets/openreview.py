"""OpenReview's expertise folders, as they are or packed in one tar archive.

``submissions.json`` maps paper id to ``{"id", "content": {"title", "abstract", ...}}``; each
``archives/~<reviewer>.jsonl`` has that reviewer's papers, newest first. Ratings lie beside them in
``evaluations.csv``. File names hold ids of people: they stand in no digest, message or protocol.
An archive is read, never unpacked.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.datasets.evaluations import read_evaluations
from runner.datasets.lines import (
    FileDigest,
    HashedLines,
    check_id,
    parse_object,
    refuse,
    text_field,
)
from runner.datasets.packed import MAX_UNPACKED_BYTES, parse_bytes, read_bytes
from runner.datasets.reviewer_compact import EVALUATIONS, paper_of
from runner.datasets.reviewers import Paper, Published

SUBMISSIONS, ARCHIVES = "submissions.json", "archives"
_LEAD = "~"
_MAX_FILES = 100_000
_SAME = "give a paper the same title and abstract wherever it stands"


def read_openreview(folder: Path, root: Path, where: Mapping[str, str], version: str) -> Published:
    """Read one version: ``where["archive"]`` names a tar below ``folder`` that has a folder
    ``version``; without it ``where["texts"]`` (or "") plus ``version`` (or "") is the folder."""
    fix = (
        f"put {EVALUATIONS} and the archive, or {SUBMISSIONS} and {ARCHIVES}/, where the protocol "
        "says below the data root, and name it with --data-root DIR (make: DATA_ROOT=DIR)"
    )
    rated_path = folder / where["ratings"] / EVALUATIONS
    name = rated_path.relative_to(folder).as_posix()
    rated = HashedLines(rated_path, root, name=name, fix=fix)
    ratings = read_evaluations(rated, rated_path)
    digests: tuple[FileDigest, ...]
    if where.get("archive"):
        source = folder / where["texts"] / where["archive"]
        data, packed = read_bytes(source, root, name=source.relative_to(folder).as_posix(), fix=fix)
        members, digests = _tar_members(data, version, source), (packed,)
    else:
        source = folder / where["texts"] / version
        members, digests = _folder_members(source, folder, root, fix)
    papers: dict[str, Paper] = {}
    submissions = _submissions(members.pop(SUBMISSIONS, None), papers, source)
    profiles = {
        who: _profile(members[who], papers, source, number)
        for number, who in enumerate(sorted(members), 1)
    }
    if not profiles:
        refuse("data.empty", f"no {ARCHIVES}/~*.jsonl", fix=fix, path=source)
    return Published(
        ratings=ratings,
        submissions=submissions,
        profiles=profiles,
        papers=papers,
        files=(rated.digest(), *digests),
    )


def _submissions(data: bytes | None, papers: dict[str, Paper], path: Path) -> tuple[str, ...]:
    if data is None:
        refuse("data.missing", f"no {SUBMISSIONS}", fix="use the whole folder", path=path)
    found = []
    for identity, row in parse_bytes(data, path / SUBMISSIONS).items():
        if not isinstance(row, dict) or row.get("id") != identity:
            fix = f'write {SUBMISSIONS} as id -> {{"id": id, "content": ...}}'
            refuse("data.bad-field", "a submission's id is not its key", fix=fix, path=path)
        _add(papers, identity, row, path, 1)
        found.append(identity)
    return tuple(found)


def _profile(data: bytes, papers: dict[str, Paper], path: Path, number: int) -> tuple[str, ...]:
    """Read one reviewer's papers; messages number the reviewer in the order of file names."""
    place = path / ARCHIVES / f"(file {number} in order of names)"
    found = []
    for line, raw in enumerate(io.BytesIO(data), 1):
        try:
            row = parse_object(raw.decode("utf-8"), place, line)
        except UnicodeDecodeError:
            fix = "convert the file to UTF-8"
            refuse("data.not-utf-8", "not UTF-8", fix=fix, path=place, line=line)
        identity = text_field(row, "id", place, line)
        _add(papers, identity, row, place, line)
        found.append(identity)
    return tuple(found)


def _add(
    papers: dict[str, Paper], identity: str, row: dict[str, object], path: Path, line: int
) -> None:
    content = row.get("content")
    if not isinstance(content, dict):
        fix = 'give every paper "content" with title and abstract'
        refuse("data.bad-field", '"content" is no object', fix=fix, path=path, line=line)
    paper = paper_of(content, path, line)
    if papers.setdefault(check_id(identity, path, line), paper) != paper:
        message = "a paper stands twice with different texts"
        refuse("data.conflicting-paper", message, fix=_SAME, path=path, line=line)


def _tar_members(data: bytes, version: str, path: Path) -> dict[str, bytes]:
    """Return reviewer id -> file, and the submissions under their name; only this version's."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for count, member in enumerate(archive):
                key = _key(member.name, version)
                if key is None:
                    continue
                total += member.size
                if not member.isreg() or key in found or count > _MAX_FILES:
                    fix = "get the published archive again"
                    message = "a member that is no regular file, stands twice or is one too many"
                    refuse("data.bad-archive", message, fix=fix, path=path)
                if total > MAX_UNPACKED_BYTES:
                    fix = "split the archive"
                    refuse("data.too-large", "unpacks to too much", fix=fix, path=path)
                stream = archive.extractfile(member)
                found[key] = stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        fix = "get the published archive again"
        kind = type(error).__name__
        refuse("data.bad-archive", f"damaged archive: {kind}", fix=fix, path=path)
    return found


def _key(name: str, version: str) -> str | None:
    parts = name.split("/")
    if parts == [version, SUBMISSIONS]:
        return SUBMISSIONS
    if parts[:2] == [version, ARCHIVES] and len(parts) == 3:
        return _reviewer(parts[2])
    return None


def _reviewer(file_name: str) -> str | None:
    if file_name.startswith(_LEAD) and file_name.endswith(".jsonl"):
        return file_name.removeprefix(_LEAD).removesuffix(".jsonl") or None
    return None


def _folder_members(
    source: Path, folder: Path, root: Path, fix: str
) -> tuple[dict[str, bytes], tuple[FileDigest, ...]]:
    """Return the files of a folder; those of people share one digest, over sorted contents."""
    prefix = source.relative_to(folder).as_posix()
    prefix = "" if prefix == "." else prefix + "/"
    data, submissions = read_bytes(source / SUBMISSIONS, root, name=prefix + SUBMISSIONS, fix=fix)
    found, digests, size = {SUBMISSIONS: data}, [], 0
    for path in _archive_files(source / ARCHIVES):
        who = _reviewer(path.name)
        if who is not None:
            found[who], one = read_bytes(path, root, name=ARCHIVES, fix=fix)
            digests.append(f"{one.sha256}  {path.name}\n")
            size += one.size
    joined = hashlib.sha256("".join(digests).encode()).hexdigest()
    return found, (submissions, FileDigest(name=prefix + ARCHIVES, sha256=joined, size=size))


def _archive_files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.iterdir()) if folder.is_dir() else ()
