"""The body of the create call: one test can read every setting."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from runner.engine.api import ContainerSpec, Mount
from runner.engine.create import HOSTNAME, container_body, hosts_mount

SPEC = ContainerSpec(
    image_id="sha256:" + "a" * 64,
    name="unit",
    command=("python3", "-m", "methods.okapi"),
    user="1000:1001",
    mounts=(
        Mount(source=Path("/data/in"), target="/in", read_only=True),
        Mount(source=Path("/data/out"), target="/out", read_only=False),
    ),
    env={"B": "2", "A": "x=y"},
    labels={"sealbench.run": "r"},
    memory_bytes=1 << 30,
    cpus_milli=1500,
    pids=128,
    tmp_bytes=1 << 20,
    shm_bytes=1 << 21,
    file_size_bytes=1 << 22,
    cgroup_parent="/sealbench/u",
)


def test_the_whole_body() -> None:
    assert container_body(SPEC) == {
        "Image": "sha256:" + "a" * 64,
        "Entrypoint": ["python3"],
        "Cmd": ["-m", "methods.okapi"],
        "User": "1000:1001",
        "WorkingDir": "/",
        "Env": ["A=x=y", "B=2"],
        "Labels": {"sealbench.run": "r"},
        "Hostname": HOSTNAME,
        "Domainname": "",
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": True,
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Privileged": False,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Init": True,
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "NanoCpus": 1_500_000_000,
            "PidsLimit": 128,
            "OomKillDisable": False,
            "OomScoreAdj": 500,
            "ShmSize": 1 << 21,
            "Tmpfs": {
                "/tmp": "rw,nosuid,nodev,exec,size=1048576,mode=1777,uid=1000,gid=1001",
            },
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": "/data/in",
                    "Target": "/in",
                    "ReadOnly": True,
                    "BindOptions": {"Propagation": "rprivate"},
                },
                {
                    "Type": "bind",
                    "Source": "/data/out",
                    "Target": "/out",
                    "ReadOnly": False,
                    "BindOptions": {"Propagation": "rprivate"},
                },
            ],
            "LogConfig": {"Type": "none", "Config": {}},
            "Ulimits": [
                {"Name": "fsize", "Soft": 1 << 22, "Hard": 1 << 22},
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": 4096, "Hard": 4096},
            ],
            "IpcMode": "private",
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "AutoRemove": False,
            "CgroupParent": "/sealbench/u",
        },
    }


def test_podman_gets_no_option_that_it_refuses() -> None:
    ours, theirs = container_body(SPEC), container_body(SPEC, podman=True)
    tmpfs = theirs["HostConfig"].pop("Tmpfs")
    del ours["HostConfig"]["Tmpfs"], ours["Healthcheck"]
    assert tmpfs == {"/tmp": "rw,nosuid,nodev,exec,size=1048576,mode=1777"}
    assert ours == theirs


def test_volumes_of_the_image_are_bounded_memory_and_hide_no_mount() -> None:
    volumes = ("/in", "/out/", "/tmp", "//data/../bulk/")
    ours, plain = container_body(SPEC, volumes=volumes), container_body(SPEC)
    tmpfs, scratch = ours["HostConfig"].pop("Tmpfs"), plain["HostConfig"].pop("Tmpfs")["/tmp"]
    assert tmpfs == {"/bulk": scratch, "/tmp": scratch}
    assert ours == plain


def test_without_a_parent_the_engine_decides() -> None:
    assert "CgroupParent" not in container_body(replace(SPEC, cgroup_parent=None))["HostConfig"]


@pytest.mark.parametrize(
    ("user", "owner"),
    [("1000:1000", ",uid=1000,gid=1000"), ("nobody", ""), ("1000", ""), ("1000:staff", "")],
)
def test_tmp_belongs_to_a_numeric_user(user: str, owner: str) -> None:
    options = container_body(replace(SPEC, user=user))["HostConfig"]["Tmpfs"]["/tmp"]
    assert options == f"rw,nosuid,nodev,exec,size=1048576,mode=1777{owner}"


def test_the_hosts_file(tmp_path: Path) -> None:
    mount = hosts_mount(tmp_path)
    assert (mount.target, mount.read_only) == ("/etc/hosts", True)
    assert mount.source.read_text().splitlines()[0] == f"127.0.0.1 localhost {HOSTNAME}"
    assert stat.S_IMODE(mount.source.stat().st_mode) == 0o644
