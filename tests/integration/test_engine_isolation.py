"""What a container may see and do on a real engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runner.engine.api import Engine, Mount
from runner.engine.create import HOSTNAME, hosts_mount
from runner.engine.docker import DockerEngine
from runner.errors import EngineError
from tests.containers import MIB, created, out_mount, run, sh, spec
from tests.tiny_image import TinyImage, build_tiny_image

pytestmark = pytest.mark.engine


def _status(engine: Engine, image: str) -> dict[str, str]:
    done = run(engine, spec(image, ("/bin/cat", "/proc/self/status")))
    lines = done.stdout.decode().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_only_the_loopback_interface_exists(engine: Engine, tiny_image: str) -> None:
    done = run(engine, spec(tiny_image, sh("ls /sys/class/net; cat /proc/net/route")))
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "lo"
    assert lines[1].startswith("Iface")
    assert len(lines) == 2  # no other interface, no route


def test_localhost_resolves_with_the_hosts_file(
    engine: Engine, tiny_image: str, tmp_path: Path
) -> None:
    command = sh(f"ping -c 1 localhost; ping -c 1 {HOSTNAME}; cat /etc/hosts")
    done = run(engine, spec(tiny_image, command, mounts=(hosts_mount(tmp_path),)))
    assert b"PING localhost (127.0.0.1)" in done.stdout
    assert f"PING {HOSTNAME} (127.0.0.1)".encode() in done.stdout


def test_loopback_carries_a_connection(engine: Engine, tiny_image: str) -> None:
    script = "(echo pong | nc -l -p 9999) & sleep 0.3; nc 127.0.0.1 9999 </dev/null"
    assert run(engine, spec(tiny_image, sh(script))).stdout == b"pong\n"


def test_the_root_is_read_only(engine: Engine, tiny_image: str) -> None:
    folders = "/ /bin /etc /in /out /proc /sys /dev"
    script = f"for d in {folders}; do touch $d/x 2>/dev/null && echo $d; done; echo end"
    assert run(engine, spec(tiny_image, sh(script))).stdout == b"end\n"


def test_no_privileges(engine: Engine, tiny_image: str) -> None:
    status = _status(engine, tiny_image)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Uid"].split() == ["65532"] * 4
    assert status["Gid"].split() == ["65532"] * 4


def test_the_environment_is_what_was_given(engine: Engine, tiny_image: str) -> None:
    done = run(engine, spec(tiny_image, ("/bin/env",), env={"A": "1 2", "HOME": "/tmp"}))
    podmans = {"container=podman", "TERM=xterm"}
    lines = sorted(set(done.stdout.decode().splitlines()) - podmans)
    assert lines == ["A=1 2", "HOME=/tmp", f"HOSTNAME={HOSTNAME}", "PATH=/bin"]


def test_the_clients_proxies_are_not_injected(
    tiny_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DockerEngine
) -> None:
    secret = "http://user:secret@proxy.invalid:3128"
    config = {
        "proxies": {"default": {"httpProxy": secret, "httpsProxy": secret}},
        "auths": {"registry.invalid": {"auth": "dXNlcjpzZWNyZXQ="}},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", secret)
    other = DockerEngine(engine.host)
    try:
        done = run(other, spec(tiny_image, ("/bin/env",)))
    finally:
        other.close()
    assert b"proxy" not in done.stdout.lower()
    assert b"secret" not in done.stdout


def test_the_hosts_name_is_hidden(engine: Engine, tiny_image: str) -> None:
    script = "hostname; cat /etc/hostname; echo; cat /proc/sys/kernel/hostname"
    done = run(engine, spec(tiny_image, sh(script)))
    assert done.stdout.decode().split() == [HOSTNAME] * 3
    assert os.uname().nodename != HOSTNAME


def test_the_engines_socket_is_not_there(engine: Engine, tiny_image: str) -> None:
    script = "ls -d /var/run/docker.sock /run/docker.sock /run/podman 2>/dev/null; echo end"
    assert run(engine, spec(tiny_image, sh(script))).stdout == b"end\n"


def test_in_is_read_only_and_out_is_writable(
    engine: Engine, tiny_image: str, tmp_path: Path
) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    inputs.chmod(0o777)
    (inputs / "task.json").write_text("{}")
    mounts = (
        Mount(source=inputs, target="/in", read_only=True),
        out_mount(tmp_path / "out"),
    )
    script = "cat /in/task.json; touch /in/x 2>/dev/null && echo wrote; echo row > /out/rows.jsonl"
    done = run(engine, spec(tiny_image, sh(script), mounts=mounts))
    assert done.stdout == b"{}"
    assert (tmp_path / "out/rows.jsonl").read_bytes() == b"row\n"
    assert list(inputs.iterdir()) == [inputs / "task.json"]


def test_a_missing_mount_source_is_an_error_and_is_not_made(
    engine: Engine, tiny_image: str, tmp_path: Path
) -> None:
    absent = Mount(source=tmp_path / "absent", target="/in", read_only=True)
    with pytest.raises(EngineError) as caught:
        engine.create(spec(tiny_image, ("/bin/true",), mounts=(absent,)))
    assert caught.value.code == "engine.refused"
    assert not absent.source.exists()


def test_tmp_is_sized_and_executable(engine: Engine, tiny_image: str) -> None:
    script = (
        "cp /bin/busybox /tmp/busybox && /tmp/busybox echo ran;"
        "dd if=/dev/zero of=/tmp/big bs=1M count=32 2>/dev/null; stat -c %s /tmp/big"
    )
    done = run(engine, spec(tiny_image, sh(script), tmp_bytes=8 * MIB))
    ran, size = done.stdout.split()
    assert ran == b"ran"
    assert 0 < int(size) < 8 * MIB


def test_tmp_is_writable_where_the_images_own_is_not(engine: DockerEngine) -> None:
    if engine.info().name != "docker":
        pytest.skip("Podman cannot give the mount to a user")
    image = build_tiny_image(tmp_mode=0o755)
    with _loaded(engine, image):
        done = run(engine, spec(image.image_id, sh("echo x > /tmp/x && cat /tmp/x")))
    assert done.stdout == b"x\n"


def test_shm_is_sized(engine: Engine, tiny_image: str) -> None:
    script = "dd if=/dev/zero of=/dev/shm/big bs=1M count=32 2>/dev/null; stat -c %s /dev/shm/big"
    done = run(engine, spec(tiny_image, sh(script), shm_bytes=4 * MIB))
    assert int(done.stdout) == 4 * MIB


def test_the_images_entry_point_does_not_meddle(engine: Engine) -> None:
    image = build_tiny_image(entrypoint=("/bin/echo", "meddled"))
    with _loaded(engine, image):
        assert run(engine, spec(image.image_id, ("/bin/echo", "mine"))).stdout == b"mine\n"


def test_a_volume_of_the_image_is_no_way_to_the_hosts_disk(engine: DockerEngine) -> None:
    image = build_tiny_image(volumes=("/bulk",))
    script = (
        "for n in 1 2; do dd if=/dev/zero of=/bulk/$n bs=1M count=3 2>/dev/null && echo $n; done"
    )
    with _loaded(engine, image):
        done = run(engine, spec(image.image_id, sh(script), tmp_bytes=4 * MIB))
    assert done.stdout == b"1\n"


def test_the_created_container_proves_its_image(engine: Engine, tiny_image: str) -> None:
    with created(engine, spec(tiny_image, ("/bin/true",))) as ident:
        state = engine.state(ident)
        assert state is not None
        assert (state.status, state.image_id) == ("created", tiny_image)
        assert state.exit_code is None
        assert state.pid is None


class _loaded:
    """An image for the length of one test. By id: it has no name that others could use."""

    def __init__(self, engine: Engine, image: TinyImage) -> None:
        assert isinstance(engine, DockerEngine)
        self._engine, self._image = engine, image

    def __enter__(self) -> None:
        import io

        self._engine.load_image(io.BytesIO(self._image.archive))

    def __exit__(self, *exc: object) -> None:
        remove_image(self._engine, self._image.image_id)


def remove_image(engine: DockerEngine, image_id: str) -> None:
    with engine._client("remove a test's image") as client:
        client.remove_image(image_id, force=True)
