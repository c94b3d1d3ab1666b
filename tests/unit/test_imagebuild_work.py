"""Work folders of image builds: private, gone afterwards, and gone after a kill too."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from runner.imagebuild import work


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(work, "_parent", lambda: tmp_path)
    return tmp_path


def _aged(folder: Path) -> None:
    past = time.time() - work.YOUNG_S - 60
    os.utime(folder, (past, past))


def test_a_work_folder_is_private_and_goes(parent: Path) -> None:
    with work.work_folder() as folder:
        assert folder.parent == parent
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "x").write_bytes(b"x")
    assert list(parent.iterdir()) == []


def test_only_what_killed_builds_left_is_swept(parent: Path) -> None:
    for name in ("sealbench-build-dead", "sealbench-build-young", "another-dead"):
        (parent / name / "inner").mkdir(parents=True)
    _aged(parent / "sealbench-build-dead")
    _aged(parent / "another-dead")
    (parent / "sealbench-build-link").symlink_to(parent / "another-dead")
    with work.work_folder() as held:
        _aged(held)
        with work.work_folder():
            assert held.is_dir()
        left = {path.name for path in parent.iterdir()}
    assert left == {held.name, "another-dead", "sealbench-build-link", "sealbench-build-young"}
    assert (parent / "another-dead" / "inner").is_dir()
