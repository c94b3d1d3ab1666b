"""Where the container engine listens.

``DOCKER_HOST`` wins and is never second-guessed; without it the usual sockets are tried in a fixed
order. Only engines on this machine will do: methods get folders of this machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from runner.errors import EngineError

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_START_ONE = "install and start one (Debian, Ubuntu: apt-get install docker.io)"


def find_host(environ: Mapping[str, str] | None = None, *, root: Path = Path("/")) -> str:
    """Return the address of the engine, ``unix://...`` or ``tcp://...``.

    Raises ``EngineError`` when there is none, or when it is on another machine. ``root`` is where
    the usual sockets are looked for.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get("DOCKER_HOST", "").strip():
        return _checked(named)
    candidates = [root / "var/run/docker.sock"]
    if runtime_dir := environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(runtime_dir) / "podman/podman.sock")
    candidates.append(root / "run/podman/podman.sock")
    sockets = [path for path in candidates if _is_socket(path)]
    usable = [path for path in sockets if os.access(path, os.R_OK | os.W_OK)]
    if usable:
        return f"unix://{usable[0]}"
    if sockets:
        raise EngineError(
            "engine.no-permission",
            f"{sockets[0]} exists, but you may not use it",
            fix="join the group that owns the socket (often docker), then log in again",
        )
    raise EngineError(
        "engine.not-found",
        "no container engine: DOCKER_HOST is not set and no Docker or Podman socket was found",
        fix=f"{_START_ONE}, or set DOCKER_HOST to its socket",
    )


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        path = Path(address.removeprefix("unix://"))
        if not _is_socket(path):
            raise EngineError(
                "engine.not-found",
                f"DOCKER_HOST names {address}, where no engine listens",
                fix=f"start that engine, unset DOCKER_HOST, or {_START_ONE}",
            )
        return address
    if parts.scheme in ("tcp", "http", "https") and parts.hostname in _LOCAL_HOSTS:
        return address
    raise EngineError(
        "engine.remote",
        "DOCKER_HOST names an engine on another machine, or in a form that is not understood",
        fix="use unix:///path/to/socket or tcp://127.0.0.1:port: methods get folders of this host",
    )


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
