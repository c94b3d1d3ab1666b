"""What a killed run leaves in its result folder, and what the next one makes of it."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from runner import workspace
from runner.commands import keeping
from runner.engine.fake import FakeEngine
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


@pytest.mark.parametrize("as_json", [False, True])
def test_clean_looks_where_it_is_told_and_says_where_that_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runner.engine.docker.DockerEngine", FakeEngine)
    known = Path("runs") / "one" / ".gone-work-0123456789ab-01234567"
    told, untold = (tmp_path / name / known.name for name in ("told", "untold"))
    kept = (tmp_path / "told" / ".gone-fishing", tmp_path / "told" / "bundle")
    for folder in (known, told, untold, *kept):
        folder.mkdir(parents=True)

    def clean(*folders: Path, dry_run: bool = False) -> str:
        keeping.clean(Namespace(folders=list(folders), dry_run=dry_run, json=as_json))
        return capsys.readouterr().out

    clean(told.parent, dry_run=True)
    assert (known.exists(), told.exists()) == (True, True)
    text = clean(told.parent)
    assert [path.exists() for path in (known, told, untold, *kept)] == [False, False, *[True] * 3]
    if as_json:
        assert json.loads(text)["finished_folders"] == [str(told), str(known)]
        return
    assert f"removed {told}, what is left of a finished run" in text
    assert f"looked in runs/, {told.parent}; name others that you gave to --out" in text
    assert clean().splitlines()[0] == "nothing to clean"


def test_a_bundle_without_its_archive_says_how_to_pack_it(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    with pytest.raises(StorageError, match="never overwritten") as caught:
        result_folder(PLAN, tmp_path)
    assert "bundle export" in caught.value.fix
    (tmp_path / "bundle.tar").touch()
    with pytest.raises(StorageError) as caught:
        result_folder(PLAN, tmp_path)
    assert "bundle export" not in caught.value.fix
