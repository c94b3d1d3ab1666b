"""What the engine says of itself, from Docker's and Podman's answers."""

from __future__ import annotations

from typing import Any

import pytest

from runner.engine.facts import engine_info, image_info

DOCKER_VERSION = {
    "Version": "20.10.24",
    "ApiVersion": "1.41",
    "Os": "linux",
    "Arch": "amd64",
    "KernelVersion": "6.1.0-18-amd64",
    "Components": [
        {"Name": "Engine", "Version": "20.10.24"},
        {"Name": "containerd", "Version": "1.6.20"},
        {"Name": "runc", "Version": "1.1.5"},
    ],
}
DOCKER_INFO = {
    "CgroupVersion": "2",
    "CgroupDriver": "systemd",
    "Driver": "overlay2",
    "DefaultRuntime": "runc",
    "NCPU": 4,
    "MemTotal": 8 << 30,
    "DockerRootDir": "/var/lib/docker",
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "Name": "a-host-name",
}


def test_docker() -> None:
    found = engine_info(DOCKER_VERSION, DOCKER_INFO)
    assert (found.name, found.version, found.api_version) == ("docker", "20.10.24", "1.41")
    assert (found.cgroup_version, found.cgroup_driver) == (2, "systemd")
    assert (found.runtime, found.runtime_version) == ("runc", "1.1.5")
    assert (found.cpus, found.memory_bytes, found.data_root) == (4, 8 << 30, "/var/lib/docker")
    assert not found.rootless
    assert found.unenforceable == ()
    assert "a-host-name" not in repr(found)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"SwapLimit": False}, ("swap",)),
        ({"PidsLimit": False, "CpuCfsQuota": False}, ("cpus", "pids")),
        (
            {"SecurityOptions": ["name=rootless"], "CgroupVersion": "1"},
            ("memory", "swap", "cpus", "pids"),
        ),
        ({"CgroupDriver": "none"}, ("memory", "swap", "cpus", "pids")),
    ],
)
def test_what_cannot_be_enforced(changes: dict[str, Any], names: tuple[str, ...]) -> None:
    assert engine_info(DOCKER_VERSION, DOCKER_INFO | changes).unenforceable == names


def test_podman() -> None:
    version = {
        "Version": "4.9.3",
        "ApiVersion": "1.41",
        "Arch": "arm64",
        "Components": [
            {"Name": "Podman Engine", "Version": "4.9.3"},
            {"Name": "OCI Runtime (crun)", "Version": "crun version 1.8.1\ncommit: 1\n+SECCOMP"},
        ],
    }
    info = {
        "CgroupVersion": "2",
        "CgroupDriver": "systemd",
        "DefaultRuntime": "crun",
        "MemoryLimit": True,
        "SwapLimit": True,
        "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
    }
    found = engine_info(version, info)
    assert (found.name, found.architecture, found.rootless) == ("podman", "arm64", True)
    assert found.runtime_version == "1.8.1"
    assert found.unenforceable == ()


def test_an_engine_that_says_little() -> None:
    found = engine_info({}, {"OSType": "linux", "Architecture": "x86_64"})
    assert (found.architecture, found.cgroup_version, found.cgroup_driver) == ("amd64", 1, "none")
    assert found.version == found.runtime_version == "unknown"
    assert set(found.unenforceable) == {"memory", "swap", "cpus", "pids"}


def test_image() -> None:
    digest = "a" * 64
    found = image_info(
        {
            "Id": digest,
            "RepoDigests": ["b@sha256:2", "a@sha256:1"],
            "Architecture": "aarch64",
            "Os": "linux",
            "Size": 12,
            "Config": {
                "Labels": {"x": "y"},
                "Cmd": None,
                "Volumes": {"/v": {}, "/a": {}},
            },
        }
    )
    assert found.image_id == f"sha256:{digest}"
    assert found.repo_digests == ("a@sha256:1", "b@sha256:2")
    assert found.platform == "linux/arm64"
    assert found.command == ()
    assert found.volumes == ("/a", "/v")
