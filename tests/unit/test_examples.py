"""The shipped schedules: they parse, call what exists, and say what they should."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runner.arguments import build_parser

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "drift"
UNITS = ("sealbench-drift.service", "sealbench-drift.timer")
_ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")


def cron() -> tuple[dict[str, str], list[str], str]:
    """The environment, the five fields and the command of the crontab's one line."""
    environment: dict[str, str] = {}
    lines: list[str] = []
    for line in (EXAMPLES / "crontab").read_text().splitlines():
        if match := _ASSIGNMENT.fullmatch(line):
            environment[match[1]] = match[2]
        elif line and not line.startswith("#"):
            lines.append(line)
    (line,) = lines
    *fields, command = line.split(maxsplit=5)
    return environment, fields, command


def workflow_scripts() -> Iterator[str]:
    document = yaml.safe_load((EXAMPLES / "workflow.yml").read_text())
    for step in document["jobs"]["look"]["steps"]:
        if "run" in step:
            yield step["run"]


def service() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (EXAMPLES / UNITS[0]).read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def commands() -> Iterator[str]:
    """Every call of sealbench in the examples."""
    yield service()["ExecStart"][0]
    yield cron()[2]
    yield from workflow_scripts()


@pytest.mark.parametrize("text", list(commands()))
def test_every_call_has_options_that_exist(text: str) -> None:
    for call in re.findall(r'sealbench"? ((?:drift|keys) [^\n)]*)', text):
        words = shlex.split(re.sub(r"2>&1.*|\|\|.*", "", call))
        parsed = build_parser().parse_args(words)
        assert callable(getattr(parsed, "handler", "").partition)


def test_all_three_schedules_look_by_the_same_command() -> None:
    assert sum("drift --baseline" in text for text in commands()) == 3


def test_the_time_of_the_cron_line() -> None:
    environment, fields, command = cron()
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    for field, (low, high) in zip(fields, bounds, strict=True):
        assert field == "*" or low <= int(field) <= high
    assert "%" not in command  # cron would end the line there
    assert set(re.findall(r"\$([A-Z]+)", command)) <= environment.keys()


@pytest.mark.parametrize(
    ("code", "said"), [(0, b""), (25, b"verdict:  different\n"), (9, b"verdict:  different\n")]
)
def test_the_cron_line_is_silent_until_something_is_wrong(
    tmp_path: Path, code: int, said: bytes
) -> None:
    environment, _, command = cron()
    program = tmp_path / "checkout" / ".venv" / "bin" / "sealbench"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "$@" > "$SEEN"\necho "verdict:  different"\nexit {code}\n')
    program.chmod(0o755)
    seen = tmp_path / "seen"
    done = subprocess.run(
        [environment["SHELL"], "-c", command],
        env={
            "PATH": "/usr/bin:/bin",
            **environment,
            "SEALBENCH": str(tmp_path / "checkout"),
            "SEEN": str(seen),
        },
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, said, b"")
    assert seen.read_text().startswith(f"drift --baseline {environment['BASELINE']} ")


def test_scripts_of_the_workflow_are_shell(tmp_path: Path) -> None:
    for script in workflow_scripts():
        plain = re.sub(r"\$\{\{[^}]*\}\}", "x", script)
        subprocess.run(["sh", "-n", "-c", plain], check=True, capture_output=True)


def test_the_workflow_pins_what_it_uses_and_never_runs_twice_at_once() -> None:
    document = yaml.safe_load((EXAMPLES / "workflow.yml").read_text())
    for step in document["jobs"]["look"]["steps"]:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))
    assert document["concurrency"] == {"group": "drift", "cancel-in-progress": False}
    for name in re.findall(r"requirements/\S+", "\n".join(workflow_scripts())):
        assert (ROOT / name).is_file()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = tmp_path / "sealbench"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in UNITS:
        text = (EXAMPLES / name).read_text()
        text = text.replace("/srv/sealbench/.venv/bin/sealbench", str(program))
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        check=False,
    )
    about_ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, about_ours) == (0, [])
    timer = (EXAMPLES / UNITS[1]).read_text()
    (when,) = re.findall(r"^OnCalendar=(.*)$", timer, re.MULTILINE)
    subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)


def test_the_service_gives_every_option_a_value() -> None:
    unit = service()
    given = {value.partition("=")[0] for value in unit["Environment"]}
    assert set(re.findall(r"\$\{([A-Z]+)\}", unit["ExecStart"][0])) <= given
    state = next(v.partition("=")[2] for v in unit["Environment"] if v.startswith("STATE="))
    assert state in unit["ReadWritePaths"][0].split()
