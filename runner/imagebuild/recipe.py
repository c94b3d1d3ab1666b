"""``images/<name>/image.toml`` -> what an image is made of. TOML, because it has one reading."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.canonical import Json
from runner.errors import ImageError, Where

RECIPE = "image.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPart:
    """Packages of a Debian suite, unpacked into ``layer``; only the root image has them."""

    layer: str
    suite: str
    packages: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelsPart:
    """Hash-locked wheels, unpacked into ``layer``.

    ``keep`` wins over ``exclude``. ``platforms`` are those that the wheels exist for, all where
    empty. ``index`` is asked as well where the usual ones lack a wheel; hashes decide as ever.
    """

    layer: str
    requirements: Path
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    index: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """Files of this repository, copied from ``folder`` to the image's ``to``.

    ``only`` names the files that are wanted, by their paths in the folder; all where it is empty.
    """

    layer: str
    folder: Path
    to: str
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRecipe:
    """A method that the image declares: what runs, and the config that it knows."""

    command: tuple[str, ...]
    tasks: tuple[str, ...]
    config: Mapping[str, Json] = field(default_factory=dict)
    cache: bool = False
    description: str = ""
    declares: Mapping[str, Json] = field(default_factory=dict)
    module: bool = False  # it takes one that a run manifest names

    def for_lock(self) -> dict[str, Json]:
        """Return what an image's label has: all of ``images.lock.json`` but ``declares``, which
        says something of the method and changes nothing in the image."""
        found: dict[str, Json] = {
            "command": list(self.command),
            "config": dict(self.config),
            "cache": self.cache,
            "tasks": list(self.tasks),
        }
        return found | ({"module": True} if self.module else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One image. ``base`` is the recipe whose layers come first, None for the root."""

    name: str
    folder: Path
    description: str
    base: Recipe | None = None
    debian: DebianPart | None = None
    wheels: WheelsPart | None = None
    sources: tuple[SourcePart, ...] = ()
    methods: Mapping[str, MethodRecipe] = field(default_factory=dict)

    def root(self) -> Recipe:
        """Return the recipe at the bottom, which has the Debian packages."""
        return self if self.base is None else self.base.root()

    def own_layers(self) -> tuple[str, ...]:
        """Return the names of the layers that this recipe adds, bottom first."""
        names = [part.layer for part in (self.debian, self.wheels, *self.sources) if part]
        return tuple(dict.fromkeys(names))


def recipe_names(images: Path) -> tuple[str, ...]:
    """Return the images that this repository can make, sorted."""
    return tuple(sorted(path.parent.name for path in images.glob(f"*/{RECIPE}")))


def load_recipe(images: Path, name: str, *, above: tuple[str, ...] = ()) -> Recipe:
    """Read one image's recipe and those below it; ``ImageError`` names file and fault."""
    if name not in recipe_names(images):
        known = ", ".join(recipe_names(images)) or "none"
        raise ImageError(
            "image.unknown",
            f"there is no image {name!r} here; there are: {known}",
            fix=f"choose one of these or add {images.name}/{name}/{RECIPE}",
        )
    if name in above:
        raise ImageError(
            "image.circular-base",
            f"the image {name} is its own base: {' -> '.join((*above, name))}",
            fix=f"correct `base` in one of these images' {RECIPE}",
        )
    path = images / name / RECIPE
    document = _document(path)
    base = document.get("base")
    recipe = Recipe(
        name=name,
        folder=path.parent,
        description=document["description"],
        base=load_recipe(images, base, above=(*above, name)) if base else None,
        debian=_debian(document),
        wheels=_wheels(document, path.parent),
        sources=tuple(_sources(document, path.parent)),
        methods=dict(_methods(document)),
    )
    if (recipe.base is None) == (recipe.debian is None):
        raise ImageError(
            "image.no-root",
            f"the image {name} has {'both' if recipe.base else 'neither'} a base"
            f" {'and' if recipe.base else 'nor'} Debian packages of its own",
            fix="give it exactly one of `base` and `[debian]`",
            where=Where(file=str(path)),
        )
    return recipe


def _document(path: Path) -> Mapping[str, Any]:
    from runner.schemas import validate

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImageError(
            "image.bad-recipe",
            f"not readable as TOML: {error}",
            fix="correct the file at the place named",
            where=Where(file=str(path)),
        ) from error
    validate("image", document, where_file=str(path), error_class=ImageError)
    return document


def _debian(document: Mapping[str, Any]) -> DebianPart | None:
    part = document.get("debian")
    if part is None:
        return None
    return DebianPart(
        layer=part["layer"],
        suite=part["suite"],
        packages=tuple(part["packages"]),
        exclude=tuple(part.get("exclude", ())),
        keep=tuple(part.get("keep", ())),
    )


def _wheels(document: Mapping[str, Any], folder: Path) -> WheelsPart | None:
    part = document.get("wheels")
    if part is None:
        return None
    return WheelsPart(
        layer=part["layer"],
        requirements=folder / part["requirements"],
        exclude=tuple(part.get("exclude", ())),
        keep=tuple(part.get("keep", ())),
        platforms=tuple(part.get("platforms", ())),
        index=part.get("index"),
    )


def _sources(document: Mapping[str, Any], folder: Path) -> Iterator[SourcePart]:
    for part in document.get("sources", ()):
        place = (folder / part["from"]).resolve()
        if not place.is_dir() or not place.is_relative_to(folder.resolve().parent):
            raise ImageError(
                "image.no-sources",
                f"{part['from']!r} is no folder among the images",
                fix="name a folder beside image.toml or below images/",
                where=Where(file=str(folder / RECIPE)),
            )
        only = tuple(part.get("only", ()))
        for name in only:
            if not (place / name).is_file():
                raise ImageError(
                    "image.no-sources",
                    f"{part['from']} has no file {name!r}",
                    fix="correct `only` in image.toml, or remove it to take every file",
                    where=Where(file=str(folder / RECIPE)),
                )
        yield SourcePart(layer=part["layer"], folder=place, to=part["to"].strip("/"), only=only)


def _methods(document: Mapping[str, Any]) -> Iterator[tuple[str, MethodRecipe]]:
    for name, part in sorted(document.get("methods", {}).items()):
        yield (
            name,
            MethodRecipe(
                command=tuple(part["command"]),
                tasks=tuple(part["tasks"]),
                config=part.get("config", {}),
                cache=part.get("cache", False),
                description=part.get("description", ""),
                declares=part.get("declares", {}),
                module=part.get("module", False),
            ),
        )
