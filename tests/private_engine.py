"""A container engine of a test's own, with an empty image store that nobody else uses.

Needs root and ``dockerd``. It has no network: methods have none either. Everything that it made is
gone afterwards, and only what this test started is ended, by its process id.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.endpoints import Endpoint, probe

START_S = 40.0
STOP_S = 20.0


class NoPrivateEngineError(Exception):
    """This machine cannot start one."""


@contextmanager
def private_engine() -> Iterator[str]:
    """Yield the address of a fresh engine."""
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        raise NoPrivateEngineError("a private engine needs dockerd and root")
    # Not below pytest's folder: the paths of sockets are short.
    work = Path(tempfile.mkdtemp(prefix="sealbench-e-", dir=_place()))
    address = f"unix://{work}/s"
    # The folder's random name may hold what a containerd namespace may not.
    name = f"sealbench-e-{secrets.token_hex(6)}"
    command = [
        program, "--data-root", f"{work}/data", "--exec-root", f"{work}/exec",
        "--pidfile", f"{work}/pid", "--host", address, "--bridge", "none", "--iptables=false",
        "--ip6tables=false", "--containerd-namespace", name,
        "--containerd-plugins-namespace", f"{name}-plugins",
    ]  # fmt: skip
    with (work / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await(address, daemon, work / "log")
        yield address
    finally:
        _end(daemon, work)


def _place() -> str:
    memory = Path("/dev/shm")
    enough = memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30
    return str(memory) if enough else "/var/tmp"


def _await(address: str, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while daemon.poll() is None and time.monotonic() < deadline:
        if probe(Endpoint(url=address, origin="test")).ok:
            return
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise NoPrivateEngineError(f"the private engine does not answer:\n{tail}")


def _end(daemon: subprocess.Popen[bytes], work: Path) -> None:
    helper = work / "exec" / "containerd" / "containerd.pid"
    pid = int(helper.read_text()) if helper.exists() else 0
    daemon.terminate()
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
        # Its own containerd ends with it, unless it had to be killed.
        with suppress(OSError):
            if str(work).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{work}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(work, ignore_errors=True)
