"""A container engine for this machine: the one that answers, else one that we install and start."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.endpoints import Answer, Endpoint, candidates, probe
from tools.steps import EXIT_ENGINE, SetupError, Step, tail
from tools.system import Site, System, apt_install, on_path, why_not_install

DOCKER_SOCKET = Endpoint(url="unix:///var/run/docker.sock", origin="the Docker socket")
PACKAGES = ("docker.io", "mmdebstrap")
START_TIMEOUT_S = 60.0
SETTLE_S = 3.0  # a package's own start of its service
# Methods have no network, so an engine without one serves: some machines allow no firewall rules.
PLAIN_NETWORK: tuple[str, ...] = ()
NO_NETWORK = ("--bridge=none", "--iptables=false", "--ip6tables=false")


class LogSign(NamedTuple):
    """What dockerd says when it gives up, what that means, and what helps."""

    sign: str
    message: str
    fix: str


_CGROUPS = "the control groups of this machine are not mounted"
_CGROUPS_FIX = (
    "mount them (apt-get install cgroupfs-mount && cgroupfs-mount); if this is a container, "
    "start it with --privileged --cgroupns=host"
)
# The first that matches counts.
LOG_SIGNS = (
    LogSign("cgroup mountpoint does not exist", _CGROUPS, _CGROUPS_FIX),
    LogSign("cgroup isn't mounted", _CGROUPS, _CGROUPS_FIX),
    LogSign(
        sign="error initializing graphdriver",
        message="the engine found no storage driver that works here (overlay is missing?)",
        fix="load it (modprobe overlay), or put /var/lib/docker on ext4 or xfs",
    ),
    LogSign(
        sign="no space left on device",
        message="the disk is full",
        fix="free some space under /var/lib/docker",
    ),
    LogSign(
        sign="pid file found",
        message="another dockerd is registered in /var/run/docker.pid",
        fix="if that process is gone, remove the file; else find out why its socket is silent",
    ),
    LogSign(
        sign="operation not permitted",
        message="the engine lacks rights that it needs",
        fix="give root the right to mount and to make namespaces (in a container: --privileged), "
        "or set DOCKER_HOST to an engine elsewhere",
    ),
)


def ensure(site: Site, step: Step) -> Endpoint:
    """Return an endpoint that answers, installing and starting one if need be.

    ``SetupError`` with exit code 7 where there is none and none can be had.
    """
    answers = [(endpoint, probe(endpoint)) for endpoint in candidates(site.env)]
    for endpoint, answer in answers:
        if answer.ok:
            step.done(f"{answer.detail} at {endpoint.url} ({endpoint.origin})")
            return endpoint
    refusal = why_no_engine(answers, site.system, installed=on_path("dockerd"))
    if refusal is not None:
        raise refusal
    _install_and_start(site, step)
    answer = probe(DOCKER_SOCKET)
    step.done(f"{answer.detail} at {DOCKER_SOCKET.url}, installed or started by this set-up")
    return DOCKER_SOCKET


def why_no_engine(
    answers: list[tuple[Endpoint, Answer]], system: System, *, installed: bool
) -> SetupError | None:
    """Decide whether to give up; None means: go on and install or start one."""
    looked = "; ".join(f"{endpoint.url}: {answer.detail}" for endpoint, answer in answers)
    denied = [endpoint.url for endpoint, answer in answers if answer.denied]
    if denied:
        return _no_engine(
            f"an engine listens at {denied[0]}, but this user may not use it",
            "join its group (usermod -aG docker $USER, then log in anew), or use sudo",
        )
    if any(endpoint.origin == "DOCKER_HOST" for endpoint, _ in answers):
        return _no_engine(
            f"the engine that DOCKER_HOST names does not answer ({looked})",
            "start that engine, or unset DOCKER_HOST to use one on this machine",
        )
    startable = installed and system.root and system.may_install
    if not startable and not system.can_install:
        return _no_engine(
            f"no container engine answers and {why_not_install(system)} (looked at {looked})",
            "install and start Docker or Podman (on Debian or Ubuntu: sudo apt-get install "
            "docker.io; Podman: systemctl --user start podman.socket), or set DOCKER_HOST",
        )
    return None


def _no_engine(message: str, fix: str) -> SetupError:
    return SetupError(message, fix=fix, exit_code=EXIT_ENGINE)


def _install_and_start(site: Site, step: Step) -> None:
    if not on_path("dockerd"):
        step.working("none found: installing Docker from this system's own packages")
        apt_install(PACKAGES, site, step)
        if wait_for(DOCKER_SOCKET, SETTLE_S, alive=lambda: True):
            return
    if site.system.systemd:
        step.working("starting the service docker")
        subprocess.run(["systemctl", "start", "docker"], check=False)
        if wait_for(DOCKER_SOCKET, START_TIMEOUT_S, alive=lambda: True):
            return
        raise _no_engine(
            "the service docker was started, but its socket does not answer",
            "see `systemctl status docker` and `journalctl -u docker`",
        )
    _start_by_hand(step)


def _start_by_hand(step: Step) -> None:
    """Start dockerd detached (no systemd here), without a network if it cannot make one."""
    log = Path("/var/log/sealbench-dockerd.log")
    for flags in (PLAIN_NETWORK, NO_NETWORK):
        what = "dockerd" if flags == PLAIN_NETWORK else "dockerd without a network of its own"
        step.working(f"starting {what} by hand (no systemd here; log: {log})")
        if spawn_dockerd(flags, log):
            step.working("it keeps running; to stop it: kill $(cat /var/run/docker.pid)")
            return
    message, fix = explain_log(log)
    raise _no_engine(f"dockerd does not start: {message}\n{tail(log)}", fix)


def spawn_dockerd(flags: tuple[str, ...], log: Path) -> bool:
    """Start dockerd as a session of its own and wait until it answers; False if it does not."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    dockerd = shutil.which("dockerd", path=path)
    if dockerd is None:
        raise _no_engine("dockerd is not on this machine", "apt-get install docker.io")
    with log.open("wb") as stream:
        daemon = subprocess.Popen(
            [dockerd, *flags],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": path},
            start_new_session=True,  # the terminal's Ctrl-C is not for it
        )
    if wait_for(DOCKER_SOCKET, START_TIMEOUT_S, alive=lambda: daemon.poll() is None):
        return True
    if daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    return False


def wait_for(endpoint: Endpoint, timeout_s: float, *, alive: Callable[[], bool]) -> bool:
    """Poll until the endpoint answers; False at the time limit or when its process is dead."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if probe(endpoint).ok:
            return True
        if not alive():
            return False
        time.sleep(0.1)
    return False


def explain_log(log: Path) -> tuple[str, str]:
    """Turn the daemon's log into what is wrong and what helps."""
    try:
        text = log.read_text(encoding="utf-8", errors="backslashreplace").lower()
    except OSError:
        text = ""
    for sign, message, fix in LOG_SIGNS:
        if sign in text:
            return message, fix
    return "its log ends with", f"read {log}, or set DOCKER_HOST to an engine that runs"
