"""Methods that want more than they may have: time, memory, processes, output, logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.model import Outcome
from tests.hostile.arena import GOOD, WORK, Arena

pytestmark = pytest.mark.engine

MIB = 1 << 20


def test_a_well_behaved_method_for_comparison(arena: Arena) -> None:
    verdict = arena.run(WORK)
    assert (verdict.outcome, verdict.reason) == (Outcome.OK, "3 of 3 rows")
    assert (arena.folder / "rows" / "part-00000.jsonl").read_text() == GOOD
    assert verdict.evidence.cpu_ns is None or verdict.evidence.cpu_ns > 0
    assert verdict.evidence.warnings == ()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("trap '' TERM; while :; do sleep 1; done", 137),
        ("kill -STOP $$", 137),  # TERM waits for CONT, KILL does not
        ("trap 'exit 0' TERM; sleep 60 & wait", 0),
        ("sleep 60", 143),
        ("while :; do :; done", 143),
    ],
)
def test_late(arena: Arena, script: str, code: int) -> None:
    verdict = arena.run(f"{WORK}; {script}", wall_ms=700, grace_ms=300)
    evidence = verdict.evidence
    assert verdict.outcome is Outcome.TIMEOUT
    assert evidence.exit_code == code
    assert evidence.signal_sent == ("KILL" if code == 137 else "TERM")
    assert "wall budget ran out" in verdict.reason
    assert "3 of 3 rows" in verdict.reason
    assert evidence.wall_ns is not None
    assert 0.7e9 <= evidence.wall_ns < 5e9


def test_a_fork_bomb(arena: Arena) -> None:
    verdict = arena.run("f() { f & f & sleep 60; }; f", wall_ms=1500, grace_ms=100, pids=24)
    assert verdict.outcome in (Outcome.TIMEOUT, Outcome.CRASHED)
    assert verdict.evidence.pids_events is None or verdict.evidence.pids_events > 0
    if verdict.evidence.pids_events:
        assert "limit on processes was hit" in verdict.reason


HOG = "dd if=/dev/zero of=/dev/null bs=200M count=1"


def test_a_memory_hog(arena: Arena) -> None:
    verdict = arena.run(f"exec {HOG}", memory_bytes=32 * MIB)
    assert verdict.outcome is Outcome.OUT_OF_MEMORY
    assert verdict.evidence.exit_code == 137
    assert verdict.evidence.oom_events is None or verdict.evidence.oom_events > 0
    assert "of 32.0 MiB" in verdict.reason


def test_a_memory_hog_whose_child_is_killed_and_that_ends_with_0(arena: Arena) -> None:
    verdict = arena.run(f"{HOG}; exit 0", memory_bytes=32 * MIB)
    assert verdict.outcome is Outcome.OUT_OF_MEMORY
    assert verdict.evidence.exit_code == 0


def test_a_child_is_killed_and_the_work_is_done_all_the_same(arena: Arena) -> None:
    verdict = arena.run(f"{HOG}; {WORK}; exit 0", memory_bytes=32 * MIB)
    assert verdict.outcome is Outcome.OK
    assert "warning" in verdict.reason


def test_a_memory_hog_by_files_in_memory(arena: Arena) -> None:
    verdict = arena.run(
        "exec dd if=/dev/zero of=/tmp/big bs=1M", memory_bytes=32 * MIB, tmp_bytes=256 * MIB
    )
    assert verdict.outcome is Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_files_in_memory_have_their_own_limits(arena: Arena, place: str) -> None:
    verdict = arena.run(
        f"dd if=/dev/zero of={place}/big bs=64k; {WORK}; exec stat -c %s {place}/big",
        tmp_bytes=2 * MIB,
        shm_bytes=2 * MIB,
        output_bytes=8 * MIB,
    )
    assert verdict.outcome is Outcome.OK
    assert int(verdict.stdout) <= 2 * MIB


def test_a_log_flood_without_end(arena: Arena) -> None:
    verdict = arena.run("yes; :", wall_ms=1500, log_bytes=64 << 10)
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.evidence.log_truncated
    assert b"\ny\n[... " in verdict.stdout.replace(b"y\n\n[", b"y\n[")
    assert b" bytes left out ...]\n" in verdict.stdout
    assert len(verdict.stdout) < (64 << 10) + 100


def test_a_log_flood_with_an_end_does_not_fail_a_method(arena: Arena) -> None:
    verdict = arena.run(f"yes | head -c 20000000; {WORK}; echo done; echo fine >&2")
    assert verdict.outcome is Outcome.OK
    assert verdict.evidence.log_truncated
    assert verdict.stdout.endswith(b"y\ndone\n")
    assert verdict.stderr == b"fine\n"


def test_logs_are_bytes(arena: Arena) -> None:
    script = r"printf '\377\376\000\033[2J\r\n\303'; sleep 0.2; printf '\251'"
    verdict = arena.run(f"{WORK}; {script}")
    assert verdict.outcome is Outcome.OK
    assert verdict.stdout == b"\xff\xfe\x00\x1b[2J\r\n\xc3\xa9"


@pytest.mark.parametrize(
    "script",
    [
        "dd if=/dev/zero of=/out/big bs=64k",
        "while :; do i=$((i+1)); dd if=/dev/zero of=/out/$i bs=64k count=4; done",
        f"{WORK}; trap '' TERM XFSZ; while :; do yes >> /out/rows.jsonl; sleep 0.01; done",
    ],
)
def test_an_output_flood(arena: Arena, script: str) -> None:
    verdict = arena.run(script, output_bytes=MIB, output_files=10_000)
    assert verdict.outcome is Outcome.OUTPUT_LIMIT
    assert verdict.evidence.output_exceeded == "output_bytes"
    assert "of 1.0 MiB" in verdict.reason


def test_a_flood_of_the_cache(arena: Arena) -> None:
    cache = arena.folder / "cache"
    cache.mkdir()
    script = "while :; do i=$((i+1)); dd if=/dev/zero of=/cache/$i bs=64k count=4; done"
    verdict = arena.run(f"{WORK}; {script}", cache_dir=cache)
    assert verdict.outcome is Outcome.OUTPUT_LIMIT
    assert verdict.reason.startswith("/cache grew")


def test_a_flood_into_a_file_without_a_name(arena: Arena) -> None:
    """It cannot be seen in the folder; the kernel's limit on a file's size holds all the same."""
    verdict = arena.run("exec 3>/out/x; rm /out/x; exec dd if=/dev/zero bs=64k >&3")
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code == 153
    assert "beyond the limit" in verdict.reason


@pytest.mark.parametrize("entry", [": > /out/$i", "mkdir /out/$i", "ln -s x /out/$i"])
def test_a_million_files(arena: Arena, entry: str) -> None:
    verdict = arena.run(f"while :; do i=$((i+1)); {entry}; done", output_files=100)
    assert verdict.outcome is Outcome.OUTPUT_LIMIT
    assert verdict.evidence.output_exceeded == "output_files"
    assert "100 entries" in verdict.reason


def test_a_sparse_giant_is_refused_by_the_kernel(arena: Arena) -> None:
    verdict = arena.run("exec truncate -s 5G /out/rows.jsonl")
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code in (1, 153)


def test_a_sparse_giant_that_the_kernel_allows(arena: Arena) -> None:
    verdict = arena.run("truncate -s 5G /out/rows.jsonl", tmp_bytes=6 << 30)
    assert verdict.outcome is Outcome.OUTPUT_LIMIT
    assert "5368709120 bytes, more than the limit" in verdict.evidence.harvest_refused[0]


@pytest.mark.parametrize("code", [1, 125, 126, 127, 137, 143, 255])
def test_exit_codes_that_look_like_somebody_elses(arena: Arena, code: int) -> None:
    verdict = arena.run(f"{WORK}; exit {code}")
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code == code
    assert verdict.evidence.signal_sent is None
    assert f"exit code {code}" in verdict.reason


def test_a_program_that_does_not_exist(arena: Arena) -> None:
    wanted = arena.request("")
    verdict = arena.run_request(replace(wanted, command=("/no/such/program",)))
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.evidence.exit_code == 127
    assert b"/no/such/program" in verdict.stdout + verdict.stderr
