"""What a killed run leaves in its result folder, and what the next one makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner import workspace
from runner.errors import StorageError
from runner.journal import Journal
from runner.model import Outcome
from runner.purge import purge
from runner.workspace import JOURNAL, Workspace, abandoned, result_folder
from tests.sealed import sandbox
from tests.unit.units import PLAN


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of the run handles it."""


def _die_while_removing(folder: Path) -> None:
    if (folder / JOURNAL).exists():
        for part in folder.rglob("part-*.jsonl"):
            part.unlink()
        raise KilledError
    purge(folder)


def test_a_half_removed_working_folder_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sandbox(tmp_path, "overlap")
    with monkeypatch.context() as killed:
        killed.setattr(workspace, "purge", _die_while_removing)
        with pytest.raises(KilledError):
            box.run()
    assert not (box.out / "bundle.tar").exists()
    shutil.move(box.out / "bundle", tmp_path / "first")  # as the message about it advises
    shutil.rmtree(box.out / "bundle.sigs")
    assert [record.outcome for record in box.run().outcomes] == [Outcome.OK]
    assert box.verify().faults == ()


def test_what_dead_runs_left_is_told_apart(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".gone-work-1").mkdir(parents=True)
    live = Workspace.open(out, PLAN, fresh=False)
    with Journal.open(live.journal, PLAN):
        assert abandoned([out]) == ([], [out / ".gone-work-1"])
    assert abandoned([out]) == ([live.folder], [out / ".gone-work-1"])
    live.remove()
    assert abandoned([out]) == ([], [out / ".gone-work-1"])


def test_a_bundle_without_its_archive_says_how_to_pack_it(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    with pytest.raises(StorageError, match="never overwritten") as caught:
        result_folder(PLAN, tmp_path)
    assert "bundle export" in caught.value.fix
    (tmp_path / "bundle.tar").touch()
    with pytest.raises(StorageError) as caught:
        result_folder(PLAN, tmp_path)
    assert "bundle export" not in caught.value.fix
