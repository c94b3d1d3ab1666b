"""The content of one layer while it is put together: a folder of files and a list of what they are.

Only what an image needs is kept of a file: its path, its bytes, whether it may be executed. Owners,
times, set-id bits and device nodes are dropped, so that equal inputs make equal layers whatever
machine and user assembled them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from runner.errors import ImageError

Kind = Literal["file", "folder", "link"]
FILE_MODE, PROGRAM_MODE, FOLDER_MODE, SHARED_FOLDER_MODE = 0o644, 0o755, 0o755, 0o1777


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One path of a layer. ``package`` names what brought it."""

    path: str
    kind: Kind
    mode: int
    package: str
    target: str = ""


class Tree:
    """A layer's files below ``root``. Paths are relative to the image's root, with ``/``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._nodes: dict[str, Node] = {}
        root.mkdir(parents=True, exist_ok=True)

    def add_file(self, path: str, content: IO[bytes], *, executable: bool, package: str) -> None:
        """Copy a file in; the same path twice is an error unless it is the same package's."""
        clean = self._claim(path, package)
        place = self.root / clean
        with place.open("wb") as out:
            shutil.copyfileobj(content, out, 1 << 20)
        mode = PROGRAM_MODE if executable else FILE_MODE
        (self.root / clean).chmod(mode)  # the image's interpreter is run from here
        self._nodes[clean] = Node(path=clean, kind="file", mode=mode, package=package)

    def adopt_file(self, path: str, *, package: str) -> None:
        """Take in a file that something else wrote below ``root``."""
        clean = self._claim(path, package)
        self._nodes[clean] = Node(path=clean, kind="file", mode=FILE_MODE, package=package)

    def add_link(self, path: str, target: str, *, package: str) -> None:
        """Add a symbolic link; the target is kept as it is."""
        clean = self._claim(path, package)
        (self.root / clean).symlink_to(target)
        self._nodes[clean] = Node(
            path=clean, kind="link", mode=0o777, package=package, target=target
        )

    def add_folder(self, path: str, *, package: str, mode: int = FOLDER_MODE) -> None:
        """Add an empty folder; folders above files come by themselves."""
        clean = _clean(path)
        if clean in self._nodes:
            return
        self._claim(path, package)
        (self.root / clean).mkdir(exist_ok=True)
        self._nodes[clean] = Node(path=clean, kind="folder", mode=mode, package=package)

    def nodes(self) -> Iterator[Node]:
        """Yield everything sorted by path, each folder before what is in it."""
        for path in sorted(self._nodes, key=lambda text: text.encode()):
            yield self._nodes[path]

    def files(self, suffix: str) -> list[Node]:
        """Return the regular files whose names end so, sorted by path."""
        return [n for n in self.nodes() if n.kind == "file" and n.path.endswith(suffix)]

    def _claim(self, path: str, package: str) -> str:
        clean = _clean(path)
        if (taken := self._nodes.get(clean)) is not None:
            raise ImageError(
                "image.path-twice",
                f"{clean} is brought by {taken.package} and again by {package}",
                fix="exclude one of the two in the image's image.toml",
            )
        self._make_parents(clean, package)
        return clean

    def _make_parents(self, clean: str, package: str) -> None:
        for parent in reversed(PurePosixPath(clean).parents[:-1]):
            name = str(parent)
            known = self._nodes.get(name)
            if known is None:
                (self.root / name).mkdir(exist_ok=True)
                self._nodes[name] = Node(
                    path=name, kind="folder", mode=FOLDER_MODE, package=package
                )
            elif known.kind != "folder":
                # A file below a link would be written to wherever the link points.
                raise ImageError(
                    "image.not-a-folder",
                    f"{package} puts {clean} below {name}, which is a {known.kind}",
                    fix="exclude the path in the image's image.toml",
                )


def _clean(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
        raise ImageError(
            "image.bad-path",
            f"{path!r} is no path inside an image",
            fix="check the package that brings it: it may have been made to escape the image",
        )
    return str(pure)
