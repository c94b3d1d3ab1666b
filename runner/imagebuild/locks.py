"""The files that remember builds: which packages, which layers, which images.

* ``images/<root>/packages.lock.json``: Debian packages by version and SHA-256, per platform.
* ``images/contents.lock.json``: what each published layer holds, package by package.
* ``images/images.lock.json``: the published images (read by ``runner.imagelock``).
* ``.cache/images/images.local.json``: images that came out different on this machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ImageError, Where
from runner.imagebuild.layers import Layer, Package
from runner.imagebuild.oci import Image
from runner.imagebuild.recipe import Recipe
from runner.imagelock import LockEntry

DEB_LOCK = "packages.lock.json"
CONTENTS_LOCK = "contents.lock.json"
IMAGES_LOCK = "images.lock.json"
DEB_LOCK_SCHEMA = "sealbench/image-packages/v1"
CONTENTS_SCHEMA = "sealbench/image-contents/v1"
IMAGES_SCHEMA = "sealbench/images-lock/v1"

#: Stands for the version of what has none: our own files.
PRESENT = "present"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a layer came out other than published. ``package`` None: what in it is not known.

    ``published`` and ``built`` are versions; equal ones mean equal version, other content.
    """

    layer: str
    package: str | None
    published: str | None
    built: str | None

    def __str__(self) -> str:
        if self.package is None:
            return f"layer {self.layer} is another one"
        if self.published == self.built:
            version = "" if self.built in {None, PRESENT} else f" {self.built}"
            return f"layer {self.layer}: {self.package}{version} has changed"
        return (
            f"layer {self.layer}: {self.package} {self.published or 'absent'}"
            f" -> {self.built or 'absent'}"
        )


def read_deb_lock(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return platform -> package -> {version, sha256}; empty where there is no lock yet."""
    document = _read(path, DEB_LOCK_SCHEMA)
    platforms: dict[str, dict[str, dict[str, str]]] = document.get("platforms", {})
    return platforms


def write_deb_lock(path: Path, platform: str, packages: Mapping[str, Mapping[str, str]]) -> None:
    """Record the packages of one platform and keep those of the others."""
    platforms = {**read_deb_lock(path), platform: {k: dict(v) for k, v in packages.items()}}
    _write(path, {"schema": DEB_LOCK_SCHEMA, "platforms": platforms})


def read_contents(path: Path, platform: str) -> dict[str, tuple[str, dict[str, Package]]]:
    """Return layer -> (diff_id, package -> what it brought) of the published layers."""
    layers = _read(path, CONTENTS_SCHEMA).get("platforms", {}).get(platform, {})
    return {
        name: (
            entry["diff_id"],
            {
                package: Package(version=version, sha256=digest)
                for package, (version, digest) in entry["packages"].items()
            },
        )
        for name, entry in layers.items()
    }


def write_contents(path: Path, platform: str, layers: Mapping[str, Layer]) -> None:
    """Record what layers hold; layers not given keep their record."""
    platforms = _read(path, CONTENTS_SCHEMA).get("platforms", {})
    of_platform = platforms.setdefault(platform, {})
    for name, layer in layers.items():
        of_platform[name] = {
            "diff_id": layer.diff_id,
            "packages": {
                package: [content.version, content.sha256]
                for package, content in layer.packages.items()
            },
        }
    _write(path, {"schema": CONTENTS_SCHEMA, "platforms": platforms})


def image_entry(image: Image, inputs: str) -> Document:
    """Return an image's entry for a lock."""
    return {
        "image_id": image.image_id,
        "manifest_digest": image.manifest_digest,
        "layers": [
            {"name": layer.name, "diff_id": layer.diff_id, "size": layer.size}
            for layer in image.layers
        ],
        "inputs_sha256": inputs,
    }


def write_image(path: Path, recipe: Recipe, platform: str, entry: Document | None) -> None:
    """Set one image's entry in an image lock; None takes it out."""
    document = _read(path, IMAGES_SCHEMA)
    images, methods = document.get("images", {}), document.get("methods", {})
    if entry is not None:
        images.setdefault(recipe.name, {})[platform] = entry
        methods[recipe.name] = {
            name: m.for_lock() | ({"declares": dict(m.declares)} if m.declares else {})
            for name, m in recipe.methods.items()
        }
    elif recipe.name in images:
        images[recipe.name].pop(platform, None)
        if not images[recipe.name]:
            del images[recipe.name]
            methods.pop(recipe.name, None)
    else:
        return
    _write(path, {"schema": IMAGES_SCHEMA, "images": images, "methods": methods})


def differences(
    layers: tuple[Layer, ...], published: Mapping[str, tuple[str, Mapping[str, Package]]]
) -> tuple[Difference, ...]:
    """Return which packages of which layers are not as published. Pure."""
    found: list[Difference] = []
    for layer in layers:
        known = published.get(layer.name)
        if known is None:
            found.append(Difference(layer=layer.name, package=None, published=None, built=None))
            continue
        if known[0] == layer.diff_id:
            continue
        for name in sorted({*known[1], *layer.packages}):
            before, now = known[1].get(name), layer.packages.get(name)
            if before != now:
                found.append(
                    Difference(
                        layer=layer.name,
                        package=name,
                        published=_version(before),
                        built=_version(now),
                    )
                )
    return tuple(found)


def layer_differences(built: LockEntry, published: LockEntry) -> tuple[Difference, ...]:
    """Return which layers are not as published, from the locks alone. Pure."""
    known = {layer.diff_id for layer in published.layers}
    return tuple(
        Difference(layer=layer.name, package=None, published=None, built=None)
        for layer in built.layers
        if layer.diff_id not in known
    )


def _version(package: Package | None) -> str | None:
    return None if package is None else package.version or PRESENT


def _read(path: Path, schema: str) -> Document:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        document = json.loads(raw)
        if document["schema"] != schema:
            raise ValueError(f"its schema is {document['schema']!r}, not {schema!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise ImageError(
            "image.bad-lock",
            f"the lock cannot be read: {error}",
            fix="restore the file from version control, or delete it if it is below .cache",
            where=Where(file=str(path)),
        ) from error
    return dict(document)


def _write(path: Path, document: Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)
