"""What a method may leave in its output folder, and what of it crosses."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from runner.model import Outcome
from tests.hostile.arena import GOOD, WORK, Arena, row

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("ln -s /etc/passwd /out/rows.jsonl", "rows.jsonl: symbolic link"),
        ("ln -s /in/good.jsonl /out/rows.jsonl", "rows.jsonl: symbolic link"),
        ("mkfifo /out/rows.jsonl", "rows.jsonl: fifo"),
        ("mkdir /out/rows.jsonl", "rows.jsonl: folder"),
        (f"{WORK}; ln /out/rows.jsonl /out/again", "rows.jsonl: has 2 names"),
        ("nc -l -s local:/out/rows.jsonl & sleep 0.2; exit 0", "no readable rows"),
        (":", "no rows.jsonl"),
        ("echo '{}' > /out/outcomes.jsonl", "no rows.jsonl"),
    ],
)
def test_rows_that_are_no_file(arena: Arena, script: str, says: str) -> None:
    verdict = arena.run(script)
    assert verdict.outcome is Outcome.INVALID_OUTPUT
    assert says in verdict.reason
    assert not (arena.folder / "rows").exists()


def test_a_device_cannot_even_be_made(arena: Arena) -> None:
    verdict = arena.run("exec busybox mknod /out/rows.jsonl c 1 5")
    assert verdict.outcome is Outcome.CRASHED
    assert list(verdict.request.out_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (row("q1", '[["d1", NaN]]'), "rows.non-finite"),
        (row("q1", '[["d1", 1e999]]'), "rows.non-finite"),
        (row("q2"), "rows.duplicate-id"),
        (row("q9"), "rows.unknown-id"),
        (row("q1", '[["d9", 1.0]]'), "rows.unknown-document"),
        (row("q1", '[["d1", 1.0], ["d1", 2.0]]'), "rows.duplicate-document"),
        (row("q1")[:30], "rows.half-line"),
        (row("q1").replace("q1", "\udcff"), "rows.utf8"),
        ("\n", "rows.blank-line"),
        (row("q1").replace("\n", "\r\n"), "rows.crlf"),
        ('{"unit_id": "x", "outcome": "ok", "reason": "trust me"}\n', "schema."),
    ],
)
def test_rows_that_do_not_hold(arena: Arena, lines: str, code: str) -> None:
    good = row("q2") + row("q3")
    wanted = arena.request("cp /in/bad.jsonl /out/rows.jsonl")
    (wanted.in_dir / "bad.jsonl").write_bytes((good + lines).encode("utf-8", "surrogateescape"))
    verdict = arena.run_request(wanted)
    assert verdict.outcome is Outcome.INVALID_OUTPUT
    rows = verdict.evidence.rows
    assert rows is not None
    assert (rows.valid, rows.missing, rows.fault_count) == (2, 1, 1)
    assert rows.faults[0].line == 3
    assert rows.faults[0].code.startswith(code)
    assert (arena.folder / "rows" / "part-00000.jsonl").read_text() == good


def test_a_crash_in_the_middle_of_a_line_keeps_the_lines_before(arena: Arena) -> None:
    verdict = arena.run(
        "head -n 2 /in/good.jsonl > /out/rows.jsonl; printf '{\"que' >> "
        "/out/rows.jsonl; kill -KILL $$"
    )
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code == 137
    assert "SIGKILL, which was not sent by the run" in verdict.reason
    assert verdict.evidence.rows is not None
    assert verdict.evidence.rows.valid == 2


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (r"touch /out/$(printf '\377')", "\\xff: file"),
        ("touch '/out/a\nb'", "a\\nb: file"),
        (r"touch /out/$(printf '\033')[2J", "\\x1b[2J: file"),
        ("ln -s /etc/shadow /out/evil", "evil: symbolic link"),
        ("mkfifo /out/pipe", "pipe: fifo"),
        ("mkdir /out/artifacts; echo 123 > /out/artifacts/a", "artifacts: 1 entries, 4 bytes"),
        ("mkdir /out/d; touch /out/d/f; busybox chmod 000 /out/d", "d: folder"),
        ("echo x > /out/../out/results.json", "results.json: file"),
    ],
)
def test_whatever_else_is_there_stays_there(arena: Arena, script: str, refused: str) -> None:
    verdict = arena.run(f"{WORK}; {script}")
    assert verdict.outcome is Outcome.OK
    (found,) = verdict.evidence.harvest_refused
    assert found.startswith(refused)
    assert [path.name for path in (arena.folder / "rows").iterdir()] == ["part-00000.jsonl"]


def test_rows_without_rights(arena: Arena) -> None:
    verdict = arena.run(f"{WORK}; busybox chmod 000 /out/rows.jsonl")
    if os.geteuid() == 0:
        assert verdict.outcome is Outcome.OK
        assert (arena.folder / "rows" / "part-00000.jsonl").stat().st_mode & 0o777 == 0o644
    else:
        assert verdict.outcome is Outcome.INVALID_OUTPUT
        assert "Permission denied" in verdict.reason


def test_a_folder_without_rights(arena: Arena) -> None:
    verdict = arena.run(f"{WORK}; busybox chmod 000 /out")
    expected = Outcome.OK if os.geteuid() == 0 else Outcome.INVALID_OUTPUT
    assert verdict.outcome is expected


DEEP = "cd /out; for i in $(busybox seq 600); do mkdir d && cd d; done"


def test_folders_nested_beyond_the_cap(arena: Arena) -> None:
    verdict = arena.run(DEEP, output_files=100)
    assert verdict.outcome is Outcome.OUTPUT_LIMIT


def test_folders_nested_within_the_cap(arena: Arena) -> None:
    verdict = arena.run(f"{WORK}; {DEEP}", output_files=1000)
    assert verdict.outcome is Outcome.OK


def test_a_grandchild_that_goes_on_writing(arena: Arena) -> None:
    writer = "while :; do echo more >> /out/late; done"
    verdict = arena.run(f'{WORK}; busybox setsid sh -c "{writer}" & sleep 0.3; exit 0')
    assert verdict.outcome is Outcome.OK
    late = verdict.request.out_dir / "late"
    size = late.stat().st_size
    assert size > 0, "it did write"
    time.sleep(0.3)
    assert late.stat().st_size == size, "it died before the harvest"
    assert (arena.folder / "rows" / "part-00000.jsonl").read_text() == GOOD


def test_rows_that_change_until_the_end(arena: Arena) -> None:
    script = "while :; do cp /in/good.jsonl /out/new; mv /out/new /out/rows.jsonl; done"
    verdict = arena.run(script, wall_ms=700, grace_ms=100)
    assert verdict.outcome is Outcome.TIMEOUT


def test_a_method_that_prints_the_records_of_a_success(arena: Arena) -> None:
    forged = '{"outcome": "ok", "reason": "3 of 3 rows", "exit_code": 0}'
    script = f"echo '{forged}'; echo '{forged}' > /out/outcomes.jsonl; exit 3"
    verdict = arena.run(script)
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code == 3
    assert forged.encode() in verdict.stdout, "it is a log and nothing more"


def test_a_trec_run_file(arena: Arena) -> None:
    lines = "".join(f"echo q{n} Q0 d1 1 {n}.5 tag; " for n in (1, 2, 3))
    verdict = arena.run(f"({lines}) > $outputDir/run.trec; test -d $inputDataset")
    assert verdict.outcome is Outcome.OK
    assert verdict.harvest.source == "run.trec"


def test_an_earlier_attempt_leaves_nothing_behind(arena: Arena) -> None:
    assert arena.run(WORK).outcome is Outcome.OK
    arena.clear()
    wanted = arena.request("exit 1")
    verdict = arena.run_request(replace(wanted))
    assert verdict.outcome is Outcome.CRASHED
    assert not (arena.folder / "rows").exists()
