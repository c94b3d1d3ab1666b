"""Debian packages and wheels become files of a layer; where packages come from; bad ones."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ImageError
from runner.imagebuild import debfetch, wheels
from runner.imagebuild.debfetch import Archive, cached_debs, fetch_debs, host_mirror, verify
from runner.imagebuild.debs import add_filesystem, add_package, control_of, deb_members
from runner.imagebuild.lock import requirements_text
from runner.imagebuild.recipe import WheelsPart
from runner.imagebuild.tree import Tree
from runner.imagebuild.wheels import SITE, Wheel, add_wheel, fetch_wheels, parse_lock
from tests.unit.image_samples import deb_bytes, write_deb, write_wheel


def paths(tree: Tree) -> dict[str, str]:
    return {node.path: node.kind for node in tree.nodes()}


def test_a_package_is_unpacked_by_the_rules(tmp_path: Path) -> None:
    _, deb = write_deb(
        tmp_path,
        "hello",
        {
            "./": "",
            "./bin/": b"",
            "./bin/hello": b"\x7fELF",
            "./usr/share/doc/hello/readme": b"long",
            "./usr/share/doc/hello/copyright": b"free",
            "./usr/lib/libhello.so": "libhello.so.1",
            "./lib/x86_64-linux-gnu/libc.so": b"c",
        },
    )
    tree = Tree(tmp_path / "t")
    add_filesystem(tree)
    add_package(tree, deb, ["usr/share/doc/*"], ["usr/share/doc/*/copyright"])
    found = paths(tree)
    assert found["usr/bin/hello"] == "file"
    assert found["usr/lib/x86_64-linux-gnu/libc.so"] == "file"
    assert found["usr/lib/libhello.so"] == "link"
    assert found["bin"] == "link"
    assert "usr/share/doc/hello/readme" not in found
    assert "usr/share/doc/hello/copyright" in found
    for folder in ("in", "out", "cache", "proc", "sys", "dev"):
        assert found[folder] == "folder"
    status = (tmp_path / "t/var/lib/dpkg/status.d/hello").read_text()
    assert "Package: hello\nVersion: 1.0\n" in status
    assert {n.package for n in tree.nodes() if "hello" in n.path} == {"hello"}


def test_set_id_bits_and_owners_of_a_package_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x.deb"
    path.write_bytes(deb_bytes("x", {"./usr/bin/su": b"x"}, mode=0o4755))
    tree = Tree(tmp_path / "t")
    add_package(tree, path, [], [])
    assert next(n.mode for n in tree.nodes() if n.path == "usr/bin/su") == 0o755


@pytest.mark.parametrize(
    "data",
    [b"", b"!<arch>\n", b"no archive at all", b"!<arch>\n" + b"x" * 60, deb_bytes("x", {})[:200]],
)
def test_a_broken_package_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.deb"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        control_of(path)
    assert caught.value.code == "image.broken-package"
    assert "broken.deb" in caught.value.message


def test_members_of_a_package(tmp_path: Path) -> None:
    path = tmp_path / "x.deb"
    path.write_bytes(deb_bytes("x", {"./a": b"1"}))
    assert list(deb_members(path)) == ["debian-binary", "control.tar.xz", "data.tar.xz"]


def test_locked_packages_come_from_the_cache_and_are_hashed(tmp_path: Path) -> None:
    digest, path = write_deb(tmp_path, "hello", {})
    locked = {"hello": {"version": "1.0", "sha256": digest}}
    debs = cached_debs(locked, tmp_path)
    assert debs is not None
    assert [(d.name, d.version) for d in debs] == [("hello", "1.0")]
    verify(debs)
    path.write_bytes(b"tampered")
    with pytest.raises(ImageError) as caught:
        verify(debs)
    assert caught.value.code == "image.cache-damaged"
    path.unlink()
    assert cached_debs(locked, tmp_path) is None


def test_without_mmdebstrap_the_fix_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.imagebuild.debfetch.shutil.which", lambda _: None)
    with pytest.raises(ImageError) as caught:
        fetch_debs(["hello"], Archive(suite="bookworm", architecture="amd64"), tmp_path)
    assert caught.value.code == "image.no-mmdebstrap"
    assert "mmdebstrap" in caught.value.fix


class FakeMmdebstrap:
    """Puts packages where the copy-out hook would, or fails."""

    def __init__(self, debs: dict[str, bytes], *, code: int = 0, stderr: str = "") -> None:
        self.debs, self.code, self.stderr = debs, code, stderr
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        hook = next(part for part in command if part.startswith("--extract-hook="))
        target = Path(hook.rpartition(" ")[2]) / "archives"
        target.mkdir()
        for name, data in self.debs.items():
            (target / name).write_bytes(data)
        return subprocess.CompletedProcess(command, self.code, "", self.stderr)


@pytest.fixture
def mmdebstrap(monkeypatch: pytest.MonkeyPatch) -> FakeMmdebstrap:
    fake = FakeMmdebstrap(
        {
            "hello_1.0_amd64.deb": deb_bytes("hello", {"./bin/hello": b"1"}),
            "dpkg_1.0_amd64.deb": deb_bytes("dpkg", {}),
        }
    )
    monkeypatch.setattr("runner.imagebuild.debfetch.shutil.which", lambda _: "/usr/bin/mmdebstrap")
    monkeypatch.setattr("runner.imagebuild.debfetch.subprocess.run", fake)
    monkeypatch.setattr(debfetch, "host_mirror", lambda _: None)
    monkeypatch.delenv("MIRROR", raising=False)
    return fake


def test_only_the_packages_asked_for_are_taken(tmp_path: Path, mmdebstrap: FakeMmdebstrap) -> None:
    archive = Archive(suite="bookworm", architecture="amd64")
    debs = fetch_debs(["hello"], archive, tmp_path / "cache")
    assert [deb.name for deb in debs] == ["hello"]
    assert debs[0].path.read_bytes() == mmdebstrap.debs["hello_1.0_amd64.deb"]
    assert debs[0].path.name == f"{debs[0].sha256}.deb"
    command = mmdebstrap.commands[0]
    assert command[-2:] == ["bookworm", "-"]
    assert any("-updates" in part and part.startswith("--setup-hook") for part in command)


def test_a_given_mirror_is_asked_for_the_suite_alone(
    tmp_path: Path, mmdebstrap: FakeMmdebstrap
) -> None:
    archive = Archive(suite="bookworm", architecture="amd64", mirror="http://mirror.invalid/debian")
    fetch_debs(["hello"], archive, tmp_path)
    assert mmdebstrap.commands[0][-1] == "deb http://mirror.invalid/debian bookworm main"


def test_the_environment_may_name_a_mirror(
    tmp_path: Path, mmdebstrap: FakeMmdebstrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR", "http://other.invalid/debian")
    fetch_debs(["hello"], Archive(suite="bookworm", architecture="amd64"), tmp_path)
    assert mmdebstrap.commands[0][-1] == "deb http://other.invalid/debian bookworm main"


def test_a_package_that_the_archive_lacks_is_named(
    tmp_path: Path, mmdebstrap: FakeMmdebstrap
) -> None:
    with pytest.raises(ImageError, match="no package absent") as caught:
        fetch_debs(["hello", "absent"], Archive(suite="bookworm", architecture="amd64"), tmp_path)
    assert caught.value.code == "image.package-missing"


def test_what_mmdebstrap_said_is_passed_on(tmp_path: Path, mmdebstrap: FakeMmdebstrap) -> None:
    mmdebstrap.code, mmdebstrap.stderr = 25, "I: fine\nE: no such suite\n"
    with pytest.raises(ImageError, match="E: no such suite") as caught:
        fetch_debs(["hello"], Archive(suite="nosuite", architecture="amd64"), tmp_path)
    assert caught.value.code == "image.fetch-failed"


DEB822 = """# comment
Types: deb
URIs: {uri}
Suites: bookworm bookworm-updates
Components: main
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.sources", DEB822.format(uri="http://m.invalid/debian"), "http://m.invalid/debian"),
        ("a.sources", DEB822.format(uri="http://m.invalid/debian/"), "http://m.invalid/debian/"),
        ("a.sources", DEB822.format(uri="http://m.invalid/prod"), None),
        ("a.sources", DEB822.format(uri="mirror+file:/etc/m/debian"), None),
        ("a.sources", DEB822.format(uri="http://m.invalid/debian") + "Enabled: no\n", None),
        ("a.sources", "URIs: http://m/debian\nSuites: trixie\nComponents: main\n", None),
        (
            "a.list",
            "deb http://m.invalid/debian bookworm main contrib\n",
            "http://m.invalid/debian",
        ),
        (
            "a.list",
            "deb [arch=amd64] http://m.invalid/debian bookworm main\n",
            "http://m.invalid/debian",
        ),
        ("a.list", "deb http://m.invalid/linux/debian bookworm stable\n", None),
        ("a.list", "# deb http://m.invalid/debian bookworm main\n", None),
        ("a.list", "deb http://m.invalid/ubuntu jammy main\n", None),
    ],
)
def test_the_hosts_own_mirror(tmp_path: Path, name: str, text: str, expected: str | None) -> None:
    (tmp_path / name).write_text(text)
    assert host_mirror("bookworm", [tmp_path / "absent", tmp_path]) == expected


def wheel_of(path: Path) -> Wheel:
    name, version, *_ = path.name.split("-")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(name=name, version=version, sha256=digest, path=path)


def test_a_wheel_is_unpacked_without_what_depends_on_the_installer(tmp_path: Path) -> None:
    path = write_wheel(
        tmp_path,
        "demo",
        "1.0",
        {
            "demo/__init__.py": b"",
            "demo/tests/test_x.py": b"",
            "demo-1.0.data/purelib/extra.py": b"",
            "demo-1.0.data/scripts/demo": b"#!python\n",
            "demo-1.0.data/headers/demo.h": b"",
            "demo-1.0.data/data/share/demo.txt": b"",
        },
    )
    tree = Tree(tmp_path / "t")
    add_wheel(tree, wheel_of(path), ["*/tests/*"])
    files = sorted(name for name, kind in paths(tree).items() if kind == "file")
    assert files == [
        f"{SITE}/demo-1.0.dist-info/METADATA",
        f"{SITE}/demo-1.0.dist-info/WHEEL",
        f"{SITE}/demo/__init__.py",
        f"{SITE}/extra.py",
        "usr/local/share/demo.txt",
    ]


@pytest.mark.parametrize("member", ["../evil.py", "/etc/evil", "a/../../../../evil"])
def test_a_wheel_cannot_leave_the_image(tmp_path: Path, member: str) -> None:
    path = write_wheel(tmp_path, "evil", "1.0", {member: b"x"})
    with pytest.raises(ImageError) as caught:
        add_wheel(Tree(tmp_path / "t"), wheel_of(path), [])
    assert caught.value.code == "image.bad-path"


def test_a_broken_wheel_is_named(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(ImageError) as caught:
        add_wheel(Tree(tmp_path / "t"), wheel_of(path), [])
    assert caught.value.code == "image.broken-wheel"


def test_a_lock_is_read_and_written(tmp_path: Path) -> None:
    digests = ["a" * 64, "b" * 64]
    found = [
        Wheel(name="rank-bm25", version="0.2.2", sha256=digest, path=tmp_path)
        for digest in reversed(digests)
    ]
    lock = tmp_path / "requirements.lock"
    lock.write_text(requirements_text(found, "requirements.in"))
    (requirement,) = parse_lock(lock)
    assert (requirement.name, requirement.version) == ("rank-bm25", "0.2.2")
    assert requirement.hashes == set(digests)


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==1.0",
        "numpy>=1 --hash=sha256:" + "a" * 64,
        "-r other.txt",
        "numpy==1 --hash=md5:aa",
    ],
)
def test_a_lock_without_hashes_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# comment\n{line}\n")
    with pytest.raises(ImageError) as caught:
        parse_lock(lock)
    assert caught.value.code == "image.bad-lock"


def locked(tmp_path: Path, *wheels_: Path, **options: Any) -> WheelsPart:
    lock = tmp_path / "requirements.lock"
    lock.write_text(requirements_text([wheel_of(path) for path in wheels_], "x"))
    return WheelsPart(layer="demo-packages", requirements=lock, **options)


def test_wheels_are_taken_by_hash_and_platform(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    intel = write_wheel(
        cache, "demo", "1.0", {"a.py": b"i"}, tag="cp311-cp311-manylinux_2_28_x86_64"
    )
    arm = write_wheel(
        cache, "demo", "1.0", {"a.py": b"a"}, tag="cp311-cp311-manylinux_2_28_aarch64"
    )
    lock = locked(tmp_path, intel, arm)
    for platform, path in (("linux/amd64", intel), ("linux/arm64", arm)):
        (wheel,) = fetch_wheels(lock, platform=platform, cache=cache)
        assert wheel.path == path


def test_a_wheel_with_another_hash_is_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_wheel(tmp_path / "cache", "demo", "1.0", {"a.py": b"1"})
    lock = locked(tmp_path, path)
    path.write_bytes(path.read_bytes() + b"tampered")
    asked: list[object] = []
    monkeypatch.setattr(wheels, "_download", lambda *arguments: asked.append(arguments))
    with pytest.raises(ImageError) as caught:
        fetch_wheels(lock, platform="linux/amd64", cache=tmp_path / "cache")
    assert caught.value.code == "image.wheel-missing"
    assert len(asked) == 1


def test_pip_is_asked_for_hashes_and_for_the_images_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    path = write_wheel(tmp_path / "index", "demo", "1.0", {"a.py": b"1"})

    def fake_pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        target = Path(command[command.index("--dest") + 1])
        (target / path.name).write_bytes(path.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("runner.imagebuild.wheels.subprocess.run", fake_pip)
    cache = tmp_path / "cache"
    (wheel,) = fetch_wheels(locked(tmp_path, path), platform="linux/arm64", cache=cache)
    assert wheel.path == cache / path.name
    (command,) = commands
    for option in ("--require-hashes", "--no-deps", "--only-binary=:all:", "3.11", "cp311"):
        assert option in command
    assert "manylinux2014_aarch64" in command
    assert not any("x86_64" in part for part in command)


def test_a_further_index_is_asked_only_where_the_usual_ones_do_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    path = write_wheel(tmp_path / "index", "demo", "1.0+cpu", {"a.py": b"1"})

    def fake_pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if "--extra-index-url" not in command:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no demo\n")
        target = Path(command[command.index("--dest") + 1])
        (target / path.name).write_bytes(path.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("runner.imagebuild.wheels.subprocess.run", fake_pip)
    part = locked(tmp_path, path, index="https://wheels.invalid/cpu")
    (wheel,) = fetch_wheels(part, platform="linux/amd64", cache=tmp_path / "cache")
    assert wheel.version == "1.0+cpu"
    assert [("https://wheels.invalid/cpu" in command) for command in commands] == [False, True]
    assert all("--require-hashes" in command for command in commands)


def test_wheels_of_one_platform_are_not_looked_for_on_another(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "index", "demo", "1.0", {"a.py": b"1"})
    part = locked(tmp_path, path, platforms=("linux/amd64",))
    with pytest.raises(ImageError, match="exist for linux/amd64 only") as caught:
        fetch_wheels(part, platform="linux/arm64", cache=tmp_path / "cache")
    assert caught.value.code == "image.platform"


def test_what_is_kept_wins_over_what_is_left_out(tmp_path: Path) -> None:
    content = {"demo/models/bert/x.py": b"", "demo/models/other/x.py": b"", "demo/y.py": b""}
    tree = Tree(tmp_path / "t")
    wheel = wheel_of(write_wheel(tmp_path, "demo", "1.0", content))
    add_wheel(tree, wheel, ["demo/models/*/*"], ["demo/models/bert/*"])
    files = [name for name, kind in paths(tree).items() if kind == "file" and name.endswith(".py")]
    assert sorted(files) == [f"{SITE}/demo/models/bert/x.py", f"{SITE}/demo/y.py"]


def test_a_failed_download_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_wheel(tmp_path / "index", "demo", "1.0", {"a.py": b"1"})
    monkeypatch.setattr(
        "runner.imagebuild.wheels.subprocess.run",
        lambda command, **_: subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n"),
    )
    with pytest.raises(ImageError, match="ERROR: no network") as caught:
        fetch_wheels(locked(tmp_path, path), platform="linux/amd64", cache=tmp_path / "cache")
    assert caught.value.code == "image.download-failed"
