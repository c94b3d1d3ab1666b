"""The build as a whole, offline: same inputs same digests, differences named, engines obeyed."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from runner.engine.api import ImageInfo
from runner.engine.fake import FakeEngine
from runner.errors import ImageError
from runner.imagebuild import assemble, build, host_image_platform, list_images, lock_update
from runner.imagebuild.build import BuildEvent, BuildReport
from runner.imagebuild.debfetch import Archive, Deb
from runner.imagebuild.layers import Layer, Package
from runner.imagebuild.lock import requirements_text
from runner.imagebuild.locks import Difference, differences
from runner.imagebuild.oci import ArchiveStream
from runner.imagebuild.recipe import SourcePart, load_recipe
from runner.imagebuild.sources import source_digests
from runner.imagelock import load_locks, resolve_image
from tests.unit.image_samples import write_deb, write_images, write_wheel
from tests.unit.test_imagebuild_packages import wheel_of

HELLO = {"./bin/hello": b"\x7fELF hello", "./usr/share/doc/hello/readme": b"x"}

OUTSIDE = '{ layer = "l", from = "../../..", to = "" }'


class Project:
    """An images folder, a cache and an archive of packages that can move on."""

    def __init__(self, root: Path) -> None:
        self.root, self.images, self.cache = root, write_images(root), root / "cache"
        self.versions = {"hello": "1.0", "libc6": "2.36"}
        self.fetches = 0
        wheel = write_wheel(self.cache / "wheels", "demo", "1.0", {"demo.txt": b"demo"})
        lock = requirements_text([wheel_of(wheel)], "requirements.in")
        (self.images / "tool" / "requirements.lock").write_text(lock)

    def fetch(self, packages: tuple[str, ...], archive: Archive, cache: Path) -> tuple[Deb, ...]:
        assert archive.suite == "bookworm"
        self.fetches += 1
        debs = []
        for name in sorted(packages):
            version = self.versions[name]
            files: dict[str, bytes | str] = {
                f"./usr/lib/{name}": version.encode(),
                **(HELLO if name == "hello" else {}),
            }
            digest, path = write_deb(cache, name, files, version=version)
            debs.append(Deb(name=name, version=version, sha256=digest, path=path))
        return tuple(debs)

    def build(self, *names: str, engine: LoadingEngine | None = None) -> BuildReport:
        return build(
            names or ("tool",), engine=engine, cache_dir=self.cache, images_dir=self.images
        )

    def lock(self, *, resolve: bool = False) -> BuildReport:
        return lock_update(cache_dir=self.cache, images_dir=self.images, resolve=resolve)


class LoadingEngine(FakeEngine):
    """A fake engine that takes archives as Docker does: by the config's digest."""

    def __init__(self) -> None:
        super().__init__({}, images=[])
        self.loads = 0
        self.spoils = False

    def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
        self.loads += 1
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            members = {m.name: (tar.extractfile(m) or archive).read() for m in tar}
        (saved,) = json.loads(members["manifest.json"])
        config = members[saved["Config"]]
        described = json.loads(config)
        for name, diff_id in zip(saved["Layers"], described["rootfs"]["diff_ids"], strict=True):
            assert "sha256:" + hashlib.sha256(members[name]).hexdigest() == diff_id
        image_id = "sha256:" + hashlib.sha256(config + b"!" * self.spoils).hexdigest()
        assert self._images is not None
        self._images.append(
            ImageInfo(
                image_id=image_id,
                repo_digests=(),
                architecture=described["architecture"],
                os=described["os"],
                size_bytes=1,
                labels=described["config"]["Labels"],
            )
        )
        return (image_id,)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    monkeypatch.setattr(assemble, "fetch_debs", made.fetch)
    return made


def test_two_builds_from_nothing_have_the_same_digests(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = project.build().images
    os.utime(project.images / "tool/files/a.txt", (5, 5))
    again = Project(tmp_path / "elsewhere")
    monkeypatch.setattr(assemble, "fetch_debs", again.fetch)
    (second,) = again.build().images
    assert first.pin.image_id == second.pin.image_id
    assert first.pin.manifest_digest == second.pin.manifest_digest


def test_locked_then_built_is_the_published_image(project: Project) -> None:
    report = project.lock()
    assert [image.name for image in report.images] == ["base", "tool"]
    engine = LoadingEngine()
    (built,) = project.build(engine=engine).images
    assert (built.status, built.pin.published, built.differences) == ("loaded", True, ())
    locks = load_locks(project.images / "images.lock.json")
    pin = resolve_image("tool", locks, host_image_platform())
    assert pin == built.pin
    assert locks.published.methods["tool"]["one"].config == {"depth": 3}
    assert not (project.cache / "images/images.local.json").exists()


def test_an_image_that_the_engine_has_is_left_alone(project: Project) -> None:
    project.lock()
    engine = LoadingEngine()
    project.build(engine=engine)
    fetches = project.fetches
    started = time.monotonic()
    (again,) = project.build(engine=engine).images
    assert again.status == "present"
    assert again.pin.published
    assert (engine.loads, project.fetches) == (1, fetches)
    assert time.monotonic() - started < 5


def test_a_second_build_takes_its_layers_from_the_cache(project: Project) -> None:
    project.lock()
    events: list[BuildEvent] = []
    build(
        ["tool"],
        engine=LoadingEngine(),
        cache_dir=project.cache,
        images_dir=project.images,
        progress=events.append,
    )
    assert [event.step for event in events] == ["load", "built"]


def test_a_package_that_moved_is_named_and_the_image_is_not_published(project: Project) -> None:
    project.lock()
    published = load_locks(project.images / "images.lock.json").published.images["tool"]
    for path in (project.cache / "debs").iterdir():
        path.unlink()
    project.versions["hello"] = "1.1"
    engine = LoadingEngine()
    report = project.build(engine=engine)
    (built,) = report.images
    assert not built.pin.published
    assert built.pin.image_id != published[host_image_platform()].image_id
    assert built.differences == (
        Difference(layer="base", package="hello", published="1.0", built="1.1"),
    )
    assert report.warnings() == ["tool is not the published image: layer base: hello 1.0 -> 1.1"]
    locks = load_locks(
        project.images / "images.lock.json", project.cache / "images/images.local.json"
    )
    assert resolve_image("tool", locks, host_image_platform()) == built.pin
    (again,) = project.build(engine=engine).images
    assert (again.status, again.pin) == ("present", built.pin)
    assert again.warnings() == ["tool is not the published image: layer base is another one"]


def test_a_changed_source_is_named(project: Project) -> None:
    project.lock()
    (project.images / "tool/files/a.txt").write_text("b\n")
    (built,) = project.build().images
    assert [str(difference) for difference in built.differences] == [
        "layer tool-files: /opt/tool/a.txt has changed"
    ]


def test_an_image_that_was_never_locked_says_so(project: Project) -> None:
    engine = LoadingEngine()
    for _ in range(2):
        report = project.build(engine=engine)
        assert report.warnings() == ["tool is not locked yet: `sealbench images lock tool`"]


def test_a_changed_declaration_is_no_published_image_either(project: Project) -> None:
    project.lock()
    recipe = project.images / "tool/image.toml"
    recipe.write_text(recipe.read_text().replace("depth = 3", "depth = 4"))
    (built,) = project.build().images
    assert not built.pin.published
    (warning,) = built.warnings()
    assert "its layers are the same" in warning


def test_only_the_named_files_of_a_folder_are_taken(project: Project) -> None:
    folder = project.images / "tool" / "files"
    (folder / "other.txt").write_text("not wanted")
    part = SourcePart(layer="files", folder=folder, to="opt", only=("a.txt",))
    before = source_digests([part])
    assert list(before) == ["opt/a.txt"]
    (folder / "other.txt").write_text("changed")
    assert source_digests([part]) == before
    recipe = project.images / "tool" / "image.toml"
    recipe.write_text(recipe.read_text().replace('from = "files"', 'from = "files"\nonly = ["b"]'))
    with pytest.raises(ImageError, match="has no file 'b'"):
        project.build()


def test_going_back_to_the_locked_sources_forgets_the_local_image(project: Project) -> None:
    project.lock()
    engine = LoadingEngine()
    source = project.images / "tool/files/a.txt"
    source.write_text("b\n")
    project.build(engine=engine)
    source.write_text("a\n")
    (built,) = project.build(engine=engine).images
    assert built.pin.published
    listed = list_images(engine=engine, cache_dir=project.cache, images_dir=project.images)
    assert [(image.name, image.published, image.present) for image in listed] == [
        ("base", True, False),
        ("tool", True, True),
    ]


def test_a_renewed_lock_takes_what_the_archive_has_now(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.imagebuild.lock._resolve", lambda *_: None)
    project.lock()
    project.versions["libc6"] = "2.37"
    kept = project.lock()
    assert kept.images[0].differences == ()
    renewed = project.lock(resolve=True)
    assert [str(d) for d in renewed.images[0].differences] == ["layer base: libc6 2.36 -> 2.37"]
    assert project.fetches == 2
    (built,) = project.build().images
    assert built.pin.published


def test_an_engine_that_changes_images_is_refused(project: Project) -> None:
    engine = LoadingEngine()
    engine.spoils = True
    with pytest.raises(ImageError) as caught:
        project.build(engine=engine)
    assert caught.value.code == "image.load-mismatch"


def test_a_damaged_cached_package_is_refused(project: Project) -> None:
    project.lock()
    for path in (project.cache / "debs").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(ImageError) as caught:
        project.build()
    assert caught.value.code == "image.cache-damaged"


def test_a_truncated_cached_layer_is_made_again(project: Project) -> None:
    (first,) = project.build().images
    for path in (project.cache / "images/layers").glob("*.tar"):
        path.write_bytes(path.read_bytes()[:-512])
    (second,) = project.build().images
    assert first.pin == second.pin
    assert project.build(engine=LoadingEngine()).images[0].status == "loaded"


def test_an_unknown_image_is_named_with_those_that_there_are(project: Project) -> None:
    with pytest.raises(ImageError, match="base, tool") as caught:
        project.build("lexcial")
    assert caught.value.code == "image.unknown"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("description = ", "image.bad-recipe"),
        ('description = "x"\ntypo = 1\nbase = "base"', "schema.unknown-key"),
        ('description = "x"', "image.no-root"),
        ('description = "x"\nbase = "tool"', "image.circular-base"),
        ('description = "x"\nbase = "none"', "image.unknown"),
        (
            f'description = "x"\nbase = "base"\nsources = [{OUTSIDE}]',
            "image.no-sources",
        ),
    ],
)
def test_recipes_that_are_wrong(project: Project, text: str, code: str) -> None:
    (project.images / "tool/image.toml").write_text(text)
    with pytest.raises(ImageError) as caught:
        load_recipe(project.images, "tool")
    assert caught.value.code == code


def test_differences_say_what_came_went_and_changed() -> None:
    def package(version: str | None, digest: str) -> Package:
        return Package(version=version, sha256=digest)

    layers = tuple(
        Layer(name=name, diff_id=f"sha256:{name}", size=1, path=Path(), packages=packages)
        for name, packages in {
            "same": {"a": package("1", "x")},
            "moved": {"a": package("2", "y"), "new": package("1", "n"), "s": package("1", "z")},
            "unknown": {},
        }.items()
    )
    published = {
        "same": ("sha256:same", {"a": package("0", "ignored")}),
        "moved": (
            "sha256:other",
            {"a": package("1", "x"), "gone": package(None, "g"), "s": package("1", "s")},
        ),
    }
    assert [str(difference) for difference in differences(layers, published)] == [
        "layer moved: a 1 -> 2",
        "layer moved: gone present -> absent",
        "layer moved: new absent -> 1",
        "layer moved: s 1 has changed",
        "layer unknown is another one",
    ]


def test_an_archive_is_read_in_any_block_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file content")
    parts: list[bytes | Path] = [b"head", b"", tmp_path / "file", b"tail"]
    for block in (1, 3, 1000):
        with ArchiveStream(parts) as stream:
            blocks = iter(lambda: stream.read(block), b"")  # noqa: B023 - used at once
            assert b"".join(blocks) == b"headfile contenttail"
