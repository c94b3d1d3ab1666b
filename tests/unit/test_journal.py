"""A journal survives a kill at any byte, belongs to one plan, and to one process at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import StorageError
from runner.journal import Journal, refuse_if_in_use, resume
from runner.model import Evidence, Outcome, RowsReport, Unit, UnitOutcome
from tests.unit.units import LIMITS, PIN, PLAN

A, B, C = PLAN.units
STAMP = "2025-01-31T12:00:00.000Z"
ROWS = RowsReport(expected=3, valid=3, missing=0, errors=0)
OK = Evidence(started=True, exit_code=0, death_proven=True, wall_ns=1_500_000_000, rows=ROWS)


def outcome(unit: Unit, word: Outcome = Outcome.OK) -> UnitOutcome:
    return UnitOutcome(
        unit=unit,
        outcome=word,
        reason="because \u2028 of \u00e9",
        evidence=OK,
        started=STAMP,
        image=PIN,
        limits=LIMITS,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def filled(path: Path, *words: Outcome) -> None:
    with Journal.open(path, PLAN) as journal:
        for unit, word in zip(PLAN.units, words, strict=False):
            journal.unit_started(unit)
            journal.unit_finished(outcome(unit, word))


def test_a_new_journal_is_empty_and_says_when_it_began(path: Path) -> None:
    with Journal.open(path, PLAN) as journal:
        assert (dict(journal.finished), journal.interrupted) == ({}, frozenset())
        started = journal.started
    header = json.loads(path.read_bytes())
    assert header["run_id"] == PLAN.run_id
    assert header["schema"] == "sealbench/journal/v1"
    assert header["started"] == started


def test_what_was_finished_comes_back_equal(path: Path) -> None:
    filled(path, Outcome.OK, Outcome.TIMEOUT)
    with Journal.open(path, PLAN) as journal:
        assert journal.finished == {
            A.unit_id: outcome(A),
            B.unit_id: outcome(B, Outcome.TIMEOUT),
        }


def test_the_beginning_of_the_run_is_kept(path: Path) -> None:
    with Journal.open(path, PLAN) as journal:
        first = journal.started
    with Journal.open(path, PLAN) as journal:
        assert journal.started == first


@pytest.mark.parametrize("word", list(Outcome))
@pytest.mark.parametrize("retry", [False, True])
def test_which_outcomes_stand(path: Path, word: Outcome, retry: bool) -> None:
    filled(path, word)
    with Journal.open(path, PLAN, retry_failed=retry) as journal:
        ours = word in (Outcome.ENGINE_ERROR, Outcome.CANCELLED, Outcome.NOT_STARTED)
        stands = word is Outcome.OK if retry else not ours
        assert (A.unit_id in journal.finished) == stands
        assert journal.interrupted == frozenset()


def test_a_unit_that_began_and_did_not_end_is_interrupted(path: Path) -> None:
    filled(path, Outcome.OK)
    with Journal.open(path, PLAN) as journal:
        journal.unit_started(B)
    with Journal.open(path, PLAN) as journal:
        assert set(journal.finished) == {A.unit_id}
        assert journal.interrupted == {B.unit_id}


def test_a_unit_that_began_again_lost_its_outcome(path: Path) -> None:
    """Its rows on disk are of the second attempt by now."""
    filled(path, Outcome.OK)
    with Journal.open(path, PLAN) as journal:
        journal.unit_started(A)
    with Journal.open(path, PLAN) as journal:
        assert dict(journal.finished) == {}
        assert journal.interrupted == {A.unit_id}
        journal.unit_finished(outcome(A, Outcome.CRASHED))
    with Journal.open(path, PLAN) as journal:
        assert journal.finished[A.unit_id].outcome is Outcome.CRASHED


def test_a_kill_at_any_byte_loses_at_most_the_last_step(path: Path) -> None:
    filled(path, Outcome.OK, Outcome.OK, Outcome.OK)
    whole = path.read_bytes()
    ends = [0, *(n + 1 for n, byte in enumerate(whole) if byte == 10)]
    for cut in [*range(0, len(whole), 97), *ends, *(end + 1 for end in ends[:-1])]:
        path.write_bytes(whole[:cut])
        with Journal.open(path, PLAN) as journal:
            steps = max(0, sum(end <= cut for end in ends) - 2)  # after the header
            assert len(journal.finished) == steps // 2
            assert len(journal.interrupted) == steps % 2
            journal.unit_started(C)
            journal.unit_finished(outcome(C))
        with Journal.open(path, PLAN) as journal:
            assert C.unit_id in journal.finished
        assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("tail", [b"\0" * 100, b'{"event":"sta', b"\xff"])
def test_garbage_after_the_last_line_is_cut_off(path: Path, tail: bytes) -> None:
    filled(path, Outcome.OK)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    Journal.open(path, PLAN).close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b"[]",
        b'{"event":"finished"}',
        b'{"event":"finished","outcome":{}}',
        b'{"event":"started","unit_id":"sha256:0"}',
        b'{"event":"party"}',
        b'{"event":"started","event":"finished"}',
        b"",
    ],
)
def test_lines_that_no_run_wrote_are_refused(path: Path, line: bytes) -> None:
    filled(path, Outcome.OK)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(StorageError) as caught:
        Journal.open(path, PLAN)
    assert caught.value.code == "storage.damaged-journal"
    assert caught.value.where is not None
    assert caught.value.where.line == 4
    refuse_if_in_use(path)  # a refusal gives the lock back


def test_a_record_that_contradicts_itself_is_refused(path: Path) -> None:
    filled(path, Outcome.OK)
    path.write_bytes(path.read_bytes().replace(b'"rows_valid":3', b'"rows_valid":2'))
    with pytest.raises(StorageError) as caught:
        Journal.open(path, PLAN)
    assert "rows_valid" in caught.value.message


def test_another_plans_journal_is_refused(path: Path) -> None:
    filled(path, Outcome.OK)
    for other in (
        replace(PLAN, run_id="sha256:" + "9" * 64),
        replace(PLAN, seed=8),
    ):
        with pytest.raises(StorageError) as caught:
            Journal.open(path, other)
        assert caught.value.code == "storage.other-run"
        assert "output folder" in caught.value.fix


def test_a_file_that_is_no_journal_is_refused_and_kept(path: Path) -> None:
    path.write_bytes(b'{"some": "file"}\n')
    with pytest.raises(StorageError):
        Journal.open(path, PLAN)
    assert path.read_bytes() == b'{"some": "file"}\n'


def test_two_runs_never_share_a_folder(path: Path) -> None:
    with Journal.open(path, PLAN):
        for attempt in (lambda: Journal.open(path, PLAN), lambda: refuse_if_in_use(path)):
            with pytest.raises(StorageError) as caught:
                attempt()
            assert caught.value.code == "storage.in-use"
            assert "choose another output folder" in caught.value.fix
    refuse_if_in_use(path)
    Journal.open(path, PLAN).close()


def test_nothing_there_is_not_in_use(path: Path) -> None:
    refuse_if_in_use(path)
    assert not path.exists()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    path.symlink_to(tmp_path / "target")
    for attempt in (lambda: Journal.open(path, PLAN), lambda: refuse_if_in_use(path)):
        with pytest.raises(StorageError):
            attempt()


def test_a_killed_owner_gives_the_lock_back(path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from runner.journal import Journal\n"
        "from tests.unit.units import PLAN\n"
        "journal = Journal.open(Path(sys.argv[1]), PLAN)\n"
        "journal.unit_started(PLAN.units[0])\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], cwd=root, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        with pytest.raises(StorageError):
            Journal.open(path, PLAN)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with Journal.open(path, PLAN) as journal:
        assert journal.interrupted == {A.unit_id}


def test_a_full_disk_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(path, PLAN) as journal:
        before = path.read_bytes()
        real = os.write
        room = [10]

        def nearly_full(descriptor: int, data: bytes) -> int:
            if room[0] <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            done = real(descriptor, data[: room[0]])
            room[0] -= done
            return done

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", nearly_full)
            with pytest.raises(StorageError) as caught:
                journal.unit_started(A)
        assert caught.value.code == "storage.full"
        assert path.read_bytes() == before
        journal.unit_started(A)
    with Journal.open(path, PLAN) as journal:
        assert journal.interrupted == {A.unit_id}


def test_every_step_is_made_durable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(path.stat().st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with Journal.open(path, PLAN) as journal:
        journal.unit_started(A)
        journal.unit_finished(outcome(A))
        assert synced[-1] == path.stat().st_size
    assert len(synced) == 4  # header, its folder, two steps


def test_steps_from_many_threads_stay_whole(path: Path) -> None:
    with Journal.open(path, PLAN) as journal:

        def work(unit: Unit) -> None:
            for _ in range(20):
                journal.unit_started(unit)
                journal.unit_finished(outcome(unit))

        threads = [threading.Thread(target=work, args=(unit,)) for unit in PLAN.units]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    progress = resume(path.read_bytes(), PLAN)
    assert len(progress.finished) == 3
    assert progress.interrupted == frozenset()
