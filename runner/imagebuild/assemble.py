"""A recipe -> its layers, bottom first, each made only if it is not in the cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from runner.imagebuild.bytecode import add_bytecode
from runner.imagebuild.debfetch import Archive, Deb, cached_debs, fetch_debs, verify
from runner.imagebuild.debs import OWN, add_filesystem, add_package
from runner.imagebuild.inputs import LayerParts, layer_inputs
from runner.imagebuild.layercache import LayerCache
from runner.imagebuild.layers import Layer, unpack_layer, write_layer
from runner.imagebuild.locks import DEB_LOCK, read_deb_lock
from runner.imagebuild.recipe import DebianPart, Recipe, WheelsPart
from runner.imagebuild.sources import add_sources
from runner.imagebuild.tree import Tree
from runner.imagebuild.wheels import Wheel, add_wheel, fetch_wheels
from runner.imagebuild.work import work_folder

Progress = Callable[[str, str], None]  # (step, what it is about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembler:
    """Where packages come from and where layers go."""

    cache_dir: Path
    platform: str
    mirror: str | None
    progress: Progress

    @property
    def architecture(self) -> str:
        return self.platform.rpartition("/")[2]

    def layers(self, recipe: Recipe) -> tuple[Layer, ...]:
        """Return all layers of an image, those of its bases first.

        Wheels are fetched while the base is made; ``progress`` may be called from two threads.
        """
        cache = LayerCache(self.cache_dir / "images" / "layers", self.platform)
        with ThreadPoolExecutor(1) as pool:
            wheels = pool.submit(self._wheels, recipe)
            made = list(self.layers(recipe.base)) if recipe.base else []
            for name in recipe.own_layers():
                parts = LayerParts(
                    recipe=recipe,
                    name=name,
                    platform=self.platform,
                    root=made[0] if made else None,
                    debs=self.debs(recipe) if name == _layer_of(recipe.debian) else (),
                    wheels=wheels.result() if name == _layer_of(recipe.wheels) else (),
                )
                made.append(self._layer(parts, cache))
        return tuple(made)

    def debs(self, recipe: Recipe, *, renew: bool = False) -> tuple[Deb, ...]:
        """Return the root image's packages: the locked ones from the cache, else (and always to
        ``renew``) what the archive has now.
        """
        part = recipe.debian
        if part is None:
            return ()
        cache = self.cache_dir / "debs"
        locked = read_deb_lock(recipe.folder / DEB_LOCK).get(self.platform, {})
        if set(locked) == set(part.packages) and not renew:
            known = cached_debs(locked, cache)
            if known is not None:
                verify(known)
                return known
        self.progress("fetch", f"{len(part.packages)} Debian packages")
        archive = Archive(suite=part.suite, architecture=self.architecture, mirror=self.mirror)
        return fetch_debs(part.packages, archive, cache)

    def _layer(self, parts: LayerParts, cache: LayerCache) -> Layer:
        def make(path: Path) -> Layer:
            self.progress("assemble", f"layer {parts.name}")
            with work_folder() as work:
                return make_layer(parts, work, path)

        return cache.get(parts.name, layer_inputs(parts), make)

    def _wheels(self, recipe: Recipe) -> tuple[Wheel, ...]:
        if recipe.wheels is None:
            return ()
        return fetch_wheels(
            recipe.wheels,
            platform=self.platform,
            cache=self.cache_dir / "wheels",
            progress=lambda what: self.progress("fetch", what),
        )


def _layer_of(part: DebianPart | WheelsPart | None) -> str | None:
    return part.layer if part else None


def make_layer(parts: LayerParts, work: Path, path: Path) -> Layer:
    """Put one layer together in ``work`` and write its tar to ``path``."""
    tree = Tree(work / "layer")
    if parts.debs:
        add_filesystem(tree)
        for deb in parts.debs:
            add_package(tree, deb.path, parts.exclude, parts.keep)
        tree.add_link("usr/bin/python3", "python3.11", package=OWN)
    for wheel in parts.wheels:
        add_wheel(tree, wheel, parts.exclude, parts.keep)
    add_sources(tree, parts.sources)
    if tree.files(".py"):
        interpreter = tree.root
        if parts.root is not None:
            interpreter = work / "root"
            unpack_layer(parts.root.path, interpreter)
        add_bytecode(tree, base=interpreter, platform=parts.platform)
    versions: dict[str, str | None] = {deb.name: deb.version for deb in parts.debs}
    versions |= {wheel.name: wheel.version for wheel in parts.wheels}
    return write_layer(tree, parts.name, versions, path)
