"""Running the installed command: one child at a time, which gets to seal when we are stopped."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

from tools.steps import SetupError


def run_child(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command on our own terminal and return its exit code (128 + signal, as a shell has it).

    Ctrl-C reaches the child by itself (same process group) and TERM is passed on: a run that is
    stopped seals what there is, so we wait for it instead of dying first.
    """
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if children:
            children[0].send_signal(number)
        else:
            early.append(number)

    # Functions, not SIG_IGN: what is ignored here would stay ignored in the child.
    before_int = signal.signal(signal.SIGINT, lambda *_: None)
    before_term = signal.signal(signal.SIGTERM, pass_on)
    try:
        children.append(subprocess.Popen(command, env=dict(env)))
        for number in early:
            children[0].send_signal(number)
        code = children[0].wait()
    finally:
        signal.signal(signal.SIGINT, before_int)
        signal.signal(signal.SIGTERM, before_term)
    return code if code >= 0 else 128 - code


def ask_child(command: Sequence[str], env: Mapping[str, str]) -> dict[str, object]:
    """Run a command that prints JSON and return it; ``SetupError`` with the command's own error."""
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = None
    if isinstance(document, dict) and done.returncode == 0:
        return document
    if isinstance(document, dict) and "message" in document:
        raise SetupError(
            f"{_place(document.get('where'))}{document['message']} [{document.get('code')}]",
            fix=str(document.get("fix")),
            exit_code=done.returncode,
        )
    raise SetupError(
        f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{done.stderr.strip()}",
        fix="see the lines above",
        exit_code=done.returncode or 1,
    )


def _place(where: object) -> str:
    if not isinstance(where, dict) or where.get("file") is None:
        return ""
    parts = [where["file"], where.get("line"), where.get("column")]
    return ":".join(str(part) for part in parts if part is not None) + ": "
