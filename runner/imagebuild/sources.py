"""Our own files -> files of a layer, each a package of its own so that a difference names it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.imagebuild.recipe import SourcePart
from runner.imagebuild.tree import Tree

IGNORED = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store"})


def source_files(part: SourcePart) -> Iterator[tuple[str, Path]]:
    """Yield (path in the image, file) of a part, sorted; caches and editors' leftovers are not."""
    for path in sorted(part.folder.rglob("*")):
        inner = path.relative_to(part.folder)
        if not path.is_file() or IGNORED.intersection(inner.parts) or path.suffix == ".pyc":
            continue
        if path.name.endswith(("~", ".swp", ".orig")):
            continue
        if part.only and inner.as_posix() not in part.only:
            continue
        yield (f"{part.to}/{inner.as_posix()}" if part.to else inner.as_posix(), path)


def source_digests(parts: Sequence[SourcePart]) -> dict[str, str]:
    """Return path in the image -> SHA-256 (hex) of the file."""
    return {
        place: hashlib.sha256(path.read_bytes()).hexdigest()
        for part in parts
        for place, path in source_files(part)
    }


def add_sources(tree: Tree, parts: Sequence[SourcePart]) -> None:
    """Copy the parts' files in. None is executable: images start them through an interpreter."""
    for part in parts:
        for place, path in source_files(part):
            tree.add_file(
                place, io.BytesIO(path.read_bytes()), executable=False, package=f"/{place}"
            )
