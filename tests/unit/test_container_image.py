"""The runner's own image: what goes into its build, and what is refused."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from tools.container import build_command, clean_wheels, download_command, own_base
from tools.container_packages import locked_hashes, place_of, unpack
from tools.steps import SetupError

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_base_is_an_argument_and_nobody_is_root() -> None:
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)[-1] == "65534:65534"
    # No shell in the base: every command is a list.
    assert all(line.startswith('RUN ["') for line in DOCKERFILE.splitlines() if "RUN" in line)


def test_what_is_copied_is_what_the_build_is_given() -> None:
    given = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line]
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    ]
    for source in copied:
        assert any(name.startswith(source.rstrip("/")) for name in given), source
        assert (ROOT / source).exists() or source.startswith(".cache/")


@pytest.mark.parametrize("base", ["python:3.11", "python", "sha256"])
def test_a_base_is_named_by_digest(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/docker")
    with pytest.raises(SetupError):
        build_command(base, ROOT, tag=None)
    assert f"BASE={own_base(ROOT)}" in build_command(own_base(ROOT), ROOT, tag="x:1")


def test_wheels_are_fetched_by_hash_and_old_ones_forgotten(tmp_path: Path) -> None:
    assert {"--require-hashes", "--only-binary=:all:"} <= set(download_command("python", ROOT))
    folder = tmp_path / ".cache" / "container" / "wheels"
    folder.mkdir(parents=True)
    for name in ("old", "new"):
        (folder / f"{name}-1.0-py3-none-any.whl").write_bytes(name.encode())
    (tmp_path / "requirements").mkdir()
    digest = hashlib.sha256(b"new").hexdigest()
    (tmp_path / "requirements" / "run.lock").write_text(f"new==1.0 --hash=sha256:{digest}\n")
    clean_wheels(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["new-1.0-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ("pkg/__init__.py", "pkg/__init__.py"),
        ("pkg-1.0.data/purelib/pkg/a.py", "pkg/a.py"),
        ("pkg-1.0.data/scripts/run", None),
    ],
)
def test_where_a_member_goes(member: str, place: str | None) -> None:
    assert place_of(member) == place


@pytest.mark.parametrize("member", ["/etc/passwd", "../up", "a/../../b", "a\\b"])
def test_a_member_that_leaves_the_folder(member: str) -> None:
    with pytest.raises(ValueError, match="leaves the folder"):
        place_of(member)


def test_only_wheels_that_the_lock_names_are_unpacked(tmp_path: Path) -> None:
    wheel = tmp_path / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg/__init__.py", b"x = 1\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    hashes = locked_hashes(f"pkg==1.0 \\\n    --hash=sha256:{digest}\n")
    unpack(wheel, hashes, tmp_path / "out")
    assert (tmp_path / "out" / "pkg" / "__init__.py").read_bytes() == b"x = 1\n"
    wheel.write_bytes(wheel.read_bytes() + b" ")
    with pytest.raises(ValueError, match="not the wheel"):
        unpack(wheel, hashes, tmp_path / "out")
