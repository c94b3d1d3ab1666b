"""Finished layers by what they were made from, so that a second build only has to load them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from runner.imagebuild.layers import Layer, Package

Make = Callable[[Path], Layer]


class LayerCache:
    """``<folder>/<layer>.<arch>.<digest>.tar`` and a ``.json`` beside it that says what it is."""

    def __init__(self, folder: Path, platform: str) -> None:
        self._folder, self._arch = folder, platform.rpartition("/")[2]
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, inputs: str, make: Make) -> Layer:
        """Return the layer, making it with ``make`` if it is not here."""
        path = self._path(name, inputs)
        known = self._read(name, path)
        if known is not None:
            return known
        # One build at a time works here: what is half made is of a build that was killed.
        for left in self._folder.glob(f".{name}.{self._arch}.*"):
            left.unlink(missing_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            made = make(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        layer = Layer(
            name=name, diff_id=made.diff_id, size=made.size, path=path, packages=made.packages
        )
        self._note(layer)
        self._forget_others(name, path)
        return layer

    def _path(self, name: str, inputs: str) -> Path:
        return self._folder / f"{name}.{self._arch}.{inputs.rpartition(':')[2][:32]}.tar"

    def _read(self, name: str, path: Path) -> Layer | None:
        """The size is compared and the digest is not: the engine checks it when it loads."""
        try:
            note = json.loads(path.with_suffix(".json").read_bytes())
            if path.stat().st_size != note["size"]:
                return None
            packages = {
                package: Package(version=version, sha256=digest)
                for package, (version, digest) in note["packages"].items()
            }
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Layer(
            name=name, diff_id=note["diff_id"], size=note["size"], path=path, packages=packages
        )

    def _note(self, layer: Layer) -> None:
        packages = {name: [p.version, p.sha256] for name, p in layer.packages.items()}
        note = {"diff_id": layer.diff_id, "size": layer.size, "packages": packages}
        layer.path.with_suffix(".json").write_text(json.dumps(note), encoding="utf-8")

    def _forget_others(self, name: str, kept: Path) -> None:
        """Layers are large: only the newest of each name stays."""
        for path in self._folder.glob(f"{name}.{self._arch}.*.tar"):
            if path != kept:
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)
