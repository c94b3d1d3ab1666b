"""Where an engine is looked for, and what is said when there is none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.engine.discover import find_host
from runner.errors import EngineError

Listen = Callable[[Path], Path]


@pytest.fixture
def listen() -> Iterator[Listen]:
    sockets: list[socket.socket] = []

    def at(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        sockets.append(listener)
        return path

    yield at
    for item in sockets:
        item.close()


def test_docker_host_wins(tmp_path: Path, listen: Listen) -> None:
    listen(tmp_path / "var/run/docker.sock")
    mine = listen(tmp_path / "mine.sock")
    assert find_host({"DOCKER_HOST": f" unix://{mine} "}, root=tmp_path) == f"unix://{mine}"


def test_the_usual_sockets_in_order(tmp_path: Path, listen: Listen) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "user")}
    last = listen(tmp_path / "run/podman/podman.sock")
    assert find_host(environ, root=tmp_path) == f"unix://{last}"
    middle = listen(tmp_path / "user/podman/podman.sock")
    assert find_host(environ, root=tmp_path) == f"unix://{middle}"
    assert find_host({}, root=tmp_path) == f"unix://{last}"
    first = listen(tmp_path / "var/run/docker.sock")
    assert find_host(environ, root=tmp_path) == f"unix://{first}"


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:2375", "tcp://localhost:2376", "http://[::1]:2375"]
)
def test_local_addresses(address: str, tmp_path: Path) -> None:
    assert find_host({"DOCKER_HOST": address}, root=tmp_path) == address


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({}, "engine.not-found"),
        ({"DOCKER_HOST": "  "}, "engine.not-found"),
        ({"DOCKER_HOST": "unix:///nonexistent/docker.sock"}, "engine.not-found"),
        ({"DOCKER_HOST": "tcp://192.0.2.7:2375"}, "engine.remote"),
        ({"DOCKER_HOST": "ssh://user@192.0.2.7"}, "engine.remote"),
        ({"DOCKER_HOST": "nonsense"}, "engine.remote"),
    ],
)
def test_none(environ: dict[str, str], code: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        find_host(environ, root=tmp_path)
    assert caught.value.code == code
    assert caught.value.fix


def test_a_plain_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "var/run").mkdir(parents=True)
    (tmp_path / "var/run/docker.sock").touch()
    with pytest.raises(EngineError) as caught:
        find_host({}, root=tmp_path)
    assert caught.value.code == "engine.not-found"
