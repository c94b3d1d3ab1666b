"""What an image is made from, as one digest: equal inputs need no second build.

Two digests: of what the repository says (known at once, stands in the lock and in the image's
label), and of what a layer was really made from (the packages that the archive really gave).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import digest_of
from runner.imagebuild.debfetch import Deb
from runner.imagebuild.layers import Layer
from runner.imagebuild.locks import DEB_LOCK, read_deb_lock
from runner.imagebuild.recipe import DebianPart, Recipe, SourcePart, WheelsPart
from runner.imagebuild.sources import source_digests
from runner.imagebuild.wheels import Wheel

#: Raise it whenever the code of this package makes other bytes from the same inputs.
BUILDER = 1


def image_inputs(recipe: Recipe, platform: str) -> str:
    """Return ``sha256:...`` of everything in the repository that decides an image's bytes."""
    chain: list[object] = []
    here: Recipe | None = recipe
    while here is not None:
        chain.append(
            {
                "debian": _debian(here, platform),
                "wheels": _wheels(here),
                "sources": {
                    name: source_digests(layer_sources(here, name)) for name in here.own_layers()
                },
                "layers": list(here.own_layers()),
            }
        )
        here = here.base
    return digest_of(
        {
            "builder": BUILDER,
            "platform": platform,
            "chain": chain,
            "methods": {name: method.for_lock() for name, method in recipe.methods.items()},
            "name": recipe.name,
            "description": recipe.description,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """All that goes into one layer. ``root`` is the layer with the interpreter, None for itself."""

    recipe: Recipe
    name: str
    platform: str
    root: Layer | None
    debs: tuple[Deb, ...] = ()
    wheels: tuple[Wheel, ...] = ()

    @property
    def sources(self) -> list[SourcePart]:
        return layer_sources(self.recipe, self.name)

    @property
    def exclude(self) -> tuple[str, ...]:
        """Patterns of what is left out of the packages of this layer."""
        part = self._part()
        return part.exclude if part else ()

    @property
    def keep(self) -> tuple[str, ...]:
        """Patterns that win over ``exclude``."""
        part = self._part()
        return part.keep if part else ()

    def _part(self) -> DebianPart | WheelsPart | None:
        return self.recipe.debian if self.debs else self.recipe.wheels if self.wheels else None


def layer_inputs(parts: LayerParts) -> str:
    """Return ``sha256:...`` of what one layer is really made from."""
    return digest_of(
        {
            "builder": BUILDER,
            "platform": parts.platform,
            "layer": parts.name,
            "root": parts.root.diff_id if parts.root else None,
            "debs": [deb.sha256 for deb in parts.debs],
            "wheels": [wheel.sha256 for wheel in parts.wheels],
            "sources": source_digests(parts.sources),
            "exclude": list(parts.exclude),
            "keep": list(parts.keep),
        }
    )


def layer_sources(recipe: Recipe, layer: str) -> list[SourcePart]:
    """Return the parts of our own files that go into a layer."""
    return [part for part in recipe.sources if part.layer == layer]


def requirements_digest(recipe: Recipe) -> str | None:
    """Return ``sha256:...`` of an image's wheel lock, None if it has no wheels."""
    if recipe.wheels is None:
        return None
    return _file_digest(recipe.wheels.requirements)


def _debian(recipe: Recipe, platform: str) -> Mapping[str, object] | None:
    part = recipe.debian
    if part is None:
        return None
    return {
        "layer": part.layer,
        "suite": part.suite,
        "packages": list(part.packages),
        "exclude": list(part.exclude),
        "keep": list(part.keep),
        "locked": read_deb_lock(recipe.folder / DEB_LOCK).get(platform, {}),
    }


def _wheels(recipe: Recipe) -> Mapping[str, object] | None:
    if recipe.wheels is None:
        return None
    inputs: dict[str, object] = {
        "layer": recipe.wheels.layer,
        "lock": _file_digest(recipe.wheels.requirements),
        "exclude": list(recipe.wheels.exclude),
    }
    if recipe.wheels.keep:  # absent when empty: the digests of images without it stay
        inputs["keep"] = list(recipe.wheels.keep)
    return inputs


def _file_digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
