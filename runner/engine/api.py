"""What the supervisor asks of a container engine, and nothing more.

``docker.py`` answers over the Engine API; ``fake.py`` answers from a script, for unit tests. All
calls address a container by id; no tag ever reaches an engine. Every failure of the engine itself
is an ``EngineError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount; a missing source is an error, never created."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container with every setting decided: network none, no capabilities, no privileges."""

    image_id: str
    name: str
    command: tuple[str, ...]
    user: str  # "uid:gid"
    mounts: tuple[Mount, ...]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    memory_bytes: int
    cpus_milli: int
    pids: int
    tmp_bytes: int
    shm_bytes: int
    file_size_bytes: int  # RLIMIT_FSIZE: one file can never outgrow the output cap
    cgroup_parent: str | None = None
    workdir: str = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """What ``inspect`` says of a container."""

    status: str  # created | running | exited | dead | ...
    exit_code: int | None
    oom_flag: bool
    error: str
    pid: int | None
    image_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSummary:
    """One container of a listing."""

    container_id: str
    name: str
    status: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image as the engine's store has it."""

    image_id: str
    repo_digests: tuple[str, ...]
    architecture: str
    os: str
    size_bytes: int
    labels: Mapping[str, str]
    command: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()  # paths that its Dockerfile declares with VOLUME

    @property
    def platform(self) -> str:
        return f"{self.os}/{self.architecture}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The engine's own facts, as far as a bundle may carry them."""

    name: str  # "docker" | "podman"
    version: str
    api_version: str
    os: str
    architecture: str
    kernel: str
    cgroup_version: int
    cgroup_driver: str  # cgroupfs | systemd | none
    storage_driver: str
    runtime: str
    runtime_version: str
    rootless: bool
    cpus: int
    memory_bytes: int
    data_root: str | None  # for the disk preflight; never recorded
    unenforceable: tuple[str, ...] = field(default=())  # limits that this engine cannot enforce


class LogStream(Protocol):
    """The attached output of a container, as bytes."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield (1 for stdout or 2 for stderr, chunk) until the container's end."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """The engine calls that a run needs."""

    def info(self) -> EngineInfo: ...

    def inspect_image(self, reference: str) -> ImageInfo | None:
        """``reference`` is ``sha256:<id>`` or ``name@sha256:<digest>``; None when absent."""
        ...

    def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
        """Load a docker or OCI archive; return the image ids that it brought."""
        ...

    def save_image(self, image_id: str) -> Iterator[bytes]:
        """Yield an image as the archive that the engine makes of it, piece by piece."""
        ...

    def pull_image(self, repository: str, manifest_digest: str) -> ImageInfo: ...

    def create(self, spec: ContainerSpec) -> str:
        """Create without starting; return the container id."""
        ...

    def attach(self, container_id: str) -> LogStream: ...

    def start(self, container_id: str) -> None: ...

    def wait(self, container_id: str, timeout_s: float) -> int | None:
        """Block until exit and return its code, or None when ``timeout_s`` passes first."""
        ...

    def state(self, container_id: str) -> ContainerState | None:
        """None when the container no longer exists."""
        ...

    def kill(self, container_id: str, signal: str) -> None:
        """Send TERM or KILL; a container that is already dead or gone is no error."""
        ...

    def remove(self, container_id: str) -> None:
        """Force removal; gone already is no error. Returns only when ``state`` is None."""
        ...

    def containers(self, labels: Mapping[str, str]) -> tuple[ContainerSummary, ...]:
        """All containers, running or not, that carry every given label.

        An empty value asks for the label's presence only.
        """
        ...

    def close(self) -> None: ...
