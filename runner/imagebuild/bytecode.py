"""Bytecode for a layer, made by the image's own Python, so that no run has to compile anything.

The root of a container is read-only: without this, every start of a method would compile all that
it imports (scikit-learn alone: 2 s of CPU). The interpreter is the one in the base layer, started
through that layer's own dynamic loader, so the bytes depend on the image and not on the host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from runner.errors import ImageError
from runner.imagebuild.tree import Tree

LOADERS = {
    "linux/amd64": ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
    "linux/arm64": ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
}
PYTHON = "usr/bin/python3.11"
SCRIPT = Path(__file__).with_name("compile_tree.py")
TIMEOUT_S = 600


def add_bytecode(tree: Tree, *, base: Path, platform: str) -> None:
    """Compile every ``.py`` of the tree with the Python of the root at ``base``.

    A file that is no valid source of that version gets none. ``ImageError`` if the interpreter
    cannot run here: images are built on machines of their own kind.
    """
    sources = tree.files(".py")
    if not sources:
        return
    _, libraries = LOADERS[platform]
    done = subprocess.run(
        [
            str(loader_of(base, platform)),
            "--library-path",
            str(base / libraries),
            str(base / PYTHON),
            *("-s", "-S", "-B", "-X", "utf8", str(SCRIPT), str(tree.root)),
        ],
        # An empty environment: no PYTHON* variable and no locale of the host reaches it.
        env={"PYTHONHASHSEED": "0", "PYTHONHOME": str(base / "usr"), "LC_ALL": "C"},
        cwd=tree.root,
        input="".join(f"{node.path}\n" for node in sources),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ImageError(
            "image.compile-failed",
            f"the image's own Python cannot run here: {done.stderr[-300:].strip()}",
            fix="build on a machine of the image's platform",
        )
    compiled = set(done.stdout.splitlines())
    for node in sources:
        if node.path in compiled:
            source = PurePosixPath(node.path)
            tree.adopt_file(
                f"{source.parent}/__pycache__/{source.stem}.cpython-311.pyc", package=node.package
            )


def loader_of(base: Path, platform: str) -> Path:
    """Return the dynamic loader below a root, its links followed inside that root."""
    place = base / LOADERS[platform][0]
    for _ in range(8):
        if not place.is_symlink():
            return place
        target = str(place.readlink())
        place = base / target.lstrip("/") if target.startswith("/") else place.parent / target
    return place
