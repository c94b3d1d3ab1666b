"""Debian's docker-registry on loopback, with an empty store of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

HOW_TO_GET_IT = "the registry tests need a registry: apt-get install docker-registry"
CONFIG = """version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {store}}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
{auth}"""


class NoRegistryError(Exception):
    """There is no docker-registry on this machine."""


@contextmanager
def running_registry(folder: Path, *, htpasswd: Path | None = None) -> Iterator[str]:
    """Yield ``127.0.0.1:<port>``; the registry ends with the block."""
    program = shutil.which("docker-registry")
    if program is None:
        raise NoRegistryError(HOW_TO_GET_IT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    auth = f"auth:\n  htpasswd: {{realm: test, path: {htpasswd}}}\n" if htpasswd else ""
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(store=folder / "store", port=port, auth=auth))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        _await(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/v2/")
            if connection.getresponse().status in (200, 401):
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise NoRegistryError("the registry does not answer")
