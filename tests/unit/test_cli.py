"""Exit codes and streams of the command line, whatever becomes of the reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import cli

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "manifests/quickstart.yaml"


def sealbench(*arguments: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "runner.cli", *arguments]
    return subprocess.run(
        command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code"), [(("check", MANIFEST), 0), (("check", "absent.yaml"), 3)]
)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_reader_that_went_away_changes_no_exit_code(
    arguments: tuple[str, ...], code: int, as_json: tuple[str, ...]
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = sealbench(*arguments, *as_json, stdout=writes)
    finally:
        os.close(writes)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_an_output_without_room_is_an_error_of_storage() -> None:
    with Path("/dev/full").open("wb") as full:
        done = sealbench("plan", MANIFEST, stdout=full.fileno())
    assert done.returncode == 9
    assert b"storage.output" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_fault_of_our_own_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(cli, "build_parser", broken)
    assert cli.main(["check", MANIFEST]) == 70
    told = capsys.readouterr().err
    assert "ZeroDivisionError: inside" in told
    assert told.endswith("please report the lines above\n")


@pytest.mark.parametrize("wrong", ["sha256:zz", "sha256:", "sha256:" + "A" * 64])
def test_a_malformed_protocol_id_is_the_command_lines_fault(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", "anything", "--protocol", wrong]) == 2
    assert "usage.protocol-id" in capsys.readouterr().err
