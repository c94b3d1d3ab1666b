"""What one unit's container is asked to be, and what came back."""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.engine.api import ContainerSpec, Mount
from runner.engine.create import hosts_mount
from runner.engine.lease import NAME
from runner.errors import SealbenchError, StorageError
from runner.model import Evidence, Limits, Unit
from runner.models import MOUNTED
from runner.parts import storage_error
from runner.secret_scan import Needles

#: Whom a method runs as when the supervisor is root: nobody.
NOBODY = 65534
#: Most characters of one text in a record.
MAX_TEXT = 1000
#: A character of a path, in an engine's words.
_CHAR = r"[^\s\"':,;)]"
#: Absolute paths that say nothing of the host: the run's own mounts, programs, and the devices and
#: processes that every container has.
_TELLS_NOTHING = (
    rf"(?:(?:in|out|cache)(?:/{_CHAR}*)?"
    r"|(?:usr/(?:local/)?)?s?bin(?:/[\w.+-]+)?"
    rf"|proc(?:/(?:self|\d+)(?:/{_CHAR}*)?)?"
    r"|dev(?:/(?:null|zero|full|u?random|shm|tty|std(?:in|out|err)|fd|pts|ptmx|mqueue))?)"
)
_HOST_PATH = re.compile(rf"(?<![\w./])/(?!{_TELLS_NOTHING}(?!{_CHAR})){_CHAR}+")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRequest:
    """One unit to run. Folders exist, are absolute paths of this host, and are never recorded.

    ``image_id`` is the engine's id of the image that ``prove_images`` found for the pin. ``in_dir``
    and what it holds must be readable for ``user`` ("uid:gid", see ``container_user``).
    ``work_dir`` is for the supervisor alone. ``remaining_wall_ms`` is what the method's earlier
    units of this repeat left of its budget. Each log keeps up to ``limits.log_bytes``.
    """

    run_id: str
    unit: Unit
    image_id: str
    command: tuple[str, ...]
    limits: Limits
    remaining_wall_ms: int
    in_dir: Path
    out_dir: Path
    work_dir: Path
    stdout_log: Path
    stderr_log: Path
    env: Mapping[str, str]
    user: str
    cache_dir: Path | None = None
    models: Mapping[str, Path] = field(default_factory=dict)  # name -> folder, mounted read-only
    rows_planned: int | None = None  # for progress only
    mounts: tuple[Mount, ...] = ()  # further ones
    passing: tuple[Path, ...] = ()  # files to remove from the host once the container has started
    needles: Needles | None = None  # what the logs must not show


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """What was observed. ``started`` is RFC 3339 UTC, None when the container never started;
    ``wall_ms_used`` is what to take off the method's budget."""

    evidence: Evidence
    started: str | None
    wall_ms_used: int


def container_user() -> str:
    """Whom methods run as: never root, and else the one who must read and remove their files."""
    uid, gid = os.geteuid(), os.getegid()
    return f"{NOBODY}:{NOBODY}" if uid == 0 else f"{uid}:{gid}"


def method_env(limits: Limits, seed: int) -> dict[str, str]:
    """The environment of every method; nothing of the host's own goes in."""
    threads = str(max(1, math.ceil(limits.cpus_milli / 1000)))
    return {
        "HOME": "/tmp",  # noqa: S108 - a path inside the container
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "inputDataset": "/in",
        "outputDir": "/out",
        "SEALBENCH_SEED": str(seed),
    }


def unit_name(request: UnitRequest) -> str:
    """A name for container and control group that no other attempt at the unit has."""
    run, unit = (text.rpartition(":")[2][:12] for text in (request.run_id, request.unit.unit_id))
    return f"{run}-{unit}-{secrets.token_hex(4)}"


def container_spec(
    request: UnitRequest,
    *,
    name: str,
    labels: Mapping[str, str],
    cgroup_parent: str | None,
) -> ContainerSpec:
    """Return the container that the request describes; writes its hosts file to ``work_dir``.

    Raises ``StorageError`` where that cannot be written.
    """
    limits = request.limits
    try:
        hosts = hosts_mount(request.work_dir)
    except OSError as error:
        raise storage_error(error) from error
    mounts = [
        Mount(source=request.in_dir, target="/in", read_only=True),
        Mount(source=request.out_dir, target="/out", read_only=False),
        hosts,
    ]
    if request.cache_dir is not None:
        mounts.append(Mount(source=request.cache_dir, target="/cache", read_only=False))
    for model, folder in request.models.items():
        mounts.append(Mount(source=folder, target=f"{MOUNTED}/{model}", read_only=True))
    mounts += request.mounts
    return ContainerSpec(
        image_id=request.image_id,
        name=f"{NAME}{name}",
        command=request.command,
        user=request.user,
        mounts=tuple(mounts),
        env=request.env,
        labels=labels,
        memory_bytes=limits.memory_bytes,
        cpus_milli=limits.cpus_milli,
        pids=limits.pids,
        tmp_bytes=limits.tmp_bytes,
        shm_bytes=limits.shm_bytes,
        # One more than the cap, so that a file that reaches it is over the cap and seen to be. The
        # kernel's limit is one for all files, and shared memory counts as files.
        file_size_bytes=max(limits.output_bytes, limits.tmp_bytes, limits.shm_bytes) + 1,
        cgroup_parent=cgroup_parent,
    )


def give_folders(request: UnitRequest) -> None:
    """Hand the writable folders to the container's user when that is not ourselves.

    Raises ``StorageError`` where that is impossible.
    """
    uid, gid = (int(part) for part in request.user.split(":"))
    if os.geteuid() != 0:
        return
    for folder in (request.out_dir, request.cache_dir):
        if folder is None:
            continue
        try:
            os.chown(folder, uid, gid, follow_symlinks=False)
            folder.chmod(0o700)
        except OSError as error:
            raise StorageError(
                "storage.not-given",
                f"cannot hand {folder} to user {uid}: {os.strerror(error.errno or 0)}",
                fix="put the output on a file system that knows owners",
            ) from error


def without_host_paths(error: SealbenchError, request: UnitRequest | None = None) -> str:
    """An error's message, fit for a record: an engine's own words name folders of the host.

    The folders of ``request`` go first, wherever they lie: they may look like a container's own,
    or hold spaces.
    """
    text = f"{error.message} [{error.code}]"
    for folder in () if request is None else _own_places(request):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])(?:/{_CHAR}*)?", "<path>", text)
    return _HOST_PATH.sub("<path>", text)[:MAX_TEXT]


def _own_places(request: UnitRequest) -> list[str]:
    """The places of the host that a request names, the longest first, as given and resolved."""
    mounts = (mount.source for mount in request.mounts)
    own = (request.in_dir, request.out_dir, request.work_dir, request.cache_dir)
    places = {path for path in (*own, *mounts, *request.models.values()) if path is not None}
    places |= {request.stdout_log.parent, request.stderr_log.parent}
    return sorted({str(p) for p in places} | {os.path.realpath(p) for p in places}, key=len)[::-1]
