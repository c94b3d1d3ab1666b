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


@pytest.mark.parametrize(
    ("line", "message", "of"),
    [
        ("run m.yaml --splt all", "arguments: --splt all; did you mean '--split'?", "run"),
        ("registry list --regisry=r", "--regisry=r; did you mean '--registry'?", "registry list"),
        ("verify b --protcol x", "--protcol is not known; did you mean '--protoc", "verify"),
        ("run m.yaml --progress quit", "'quit'; did you mean 'quiet'?", "run"),
        ("run m.yaml more", "unrecognized arguments: more [", "run"),
        ("images lst", "'lst'; did you mean 'list'?", "images"),
        ("verfy b", "'verfy'; did you mean 'verify'?", ""),
        ("frobnicate", "(choose from check, plan, run,", ""),
    ],
)  # fmt: skip
def test_a_slip_is_told_by_the_command_that_it_was_made_at(
    line: str, message: str, of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.endswith(f"fix: see `{' '.join(['sealbench', *of.split()])} --help`\n")


def test_a_file_that_cannot_be_scored_is_named_as_it_was_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    protocol = str(ROOT / "manifests/benchmarks/quickstart-v1.protocol.json")
    assert cli.main(["score", "none/{dataset}.trc", "--protocol", protocol]) == 4
    told = capsys.readouterr().err
    assert told.startswith("sealbench: none/quickstart-mini.trc: cannot read the results")
    assert cli.main(["score", "", "--protocol", protocol]) == 2


@pytest.mark.parametrize("wrong", ["sha256:zz", "sha256:", "sha256:" + "A" * 64])
def test_a_malformed_protocol_id_is_the_command_lines_fault(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", "anything", "--protocol", wrong]) == 2
    assert "usage.protocol-id" in capsys.readouterr().err
