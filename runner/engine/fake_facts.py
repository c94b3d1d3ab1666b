"""What the fake engine says of itself and of its images."""

from __future__ import annotations

from runner.engine.api import EngineInfo, ImageInfo

FAKE_INFO = EngineInfo(
    name="docker",
    version="20.10.24",
    api_version="1.41",
    os="linux",
    architecture="amd64",
    kernel="6.1.0",
    cgroup_version=1,
    cgroup_driver="cgroupfs",
    storage_driver="overlay2",
    runtime="runc",
    runtime_version="1.1.5",
    rootless=False,
    cpus=2,
    memory_bytes=8 << 30,
    data_root=None,
)


def fake_image(image_id: str, platform: str = "linux/amd64") -> ImageInfo:
    """An image of that id and platform."""
    system, _, architecture = platform.partition("/")
    return ImageInfo(
        image_id=image_id,
        repo_digests=(),
        architecture=architecture,
        os=system,
        size_bytes=1 << 20,
        labels={},
    )
