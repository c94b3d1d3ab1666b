"""Pure: one ``ContainerSpec`` -> the body of the engine's create call.

The body is written out in full rather than through the SDK's helpers, so that nothing is added on
the way (the client configuration's proxies, credentials included, are one such thing) and one test
can read every setting.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runner.engine.api import ContainerSpec, Mount

#: What a method sees instead of the host's name.
HOSTNAME = "sealbench"
#: A container without network gets no /etc/hosts from the engine, and then ``localhost`` does not
#: resolve; libraries that talk to their own workers over loopback need it.
HOSTS = b"127.0.0.1 localhost sealbench\n::1 localhost ip6-localhost ip6-loopback\n"
#: Open files of one process; the same on every host.
OPEN_FILES = 4096
#: When the whole host runs short, the kernel should take a method before it takes the supervisor.
OOM_SCORE_ADJ = 500


def container_body(
    spec: ContainerSpec, *, podman: bool = False, volumes: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the JSON body of ``POST /containers/create``, for Docker or Podman.

    ``volumes`` are the paths that the image declares with VOLUME. An engine would make each a
    writable folder on the host's disk, without any limit; here it is one more /tmp, and empty.
    """
    body = {
        "Image": spec.image_id,
        # An image's own entry point would be prefixed to the command; the plan names all of it.
        # An empty list would do for Docker, but Podman takes it for "the image's own".
        "Entrypoint": list(spec.command[:1]),
        "Cmd": list(spec.command[1:]),
        "User": spec.user,
        "WorkingDir": spec.workdir,
        "Env": [f"{key}={value}" for key, value in sorted(spec.env.items())],
        "Labels": dict(spec.labels),
        "Hostname": HOSTNAME,
        "Domainname": "",
        "StopSignal": "SIGTERM",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": True,
        "AttachStderr": True,
        # Skips the engine's network hook (half the start time). Podman does not know it: the
        # network mode says the same again, at no cost.
        "NetworkDisabled": True,
        "HostConfig": _host_config(spec, podman=podman, volumes=volumes),
    }
    if not podman:  # takes NONE for a check, which needs systemd
        body["Healthcheck"] = {"Test": ["NONE"]}
    return body


def hosts_mount(folder: Path) -> Mount:
    """Write the hosts file into a folder that the engine can see; return its mount."""
    path = folder / "hosts"
    path.write_bytes(HOSTS)
    path.chmod(0o644)
    return Mount(source=path, target="/etc/hosts", read_only=True)


def _host_config(spec: ContainerSpec, *, podman: bool, volumes: Iterable[str]) -> dict[str, Any]:
    declared = {posixpath.normpath("/" + path.lstrip("/")) for path in volumes}
    scratch = {"/tmp", *declared} - {mount.target for mount in spec.mounts}  # noqa: S108 - paths inside the container
    config: dict[str, Any] = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        # Without an init, TERM is ignored by a PID 1 that installs no handler.
        "Init": True,
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,  # the sum of both: no swap
        "NanoCpus": spec.cpus_milli * 1_000_000,
        "PidsLimit": spec.pids,
        "OomKillDisable": False,
        "OomScoreAdj": OOM_SCORE_ADJ,
        "ShmSize": spec.shm_bytes,
        "Tmpfs": {path: _tmp_options(spec, podman=podman) for path in sorted(scratch)},
        "Mounts": [_mount(mount) for mount in spec.mounts],
        # json-file grew 30 MB of output to 1.07 GB and lost non-UTF-8 bytes.
        "LogConfig": {"Type": "none", "Config": {}},
        "Ulimits": [
            {"Name": "fsize", "Soft": spec.file_size_bytes, "Hard": spec.file_size_bytes},
            {"Name": "core", "Soft": 0, "Hard": 0},
            # Engines hand on their own, from 1,024 to a billion: some programs count up to it.
            {"Name": "nofile", "Soft": OPEN_FILES, "Hard": OPEN_FILES},
        ],
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,  # the container must stay for its evidence
    }
    if spec.cgroup_parent is not None:
        config["CgroupParent"] = spec.cgroup_parent
    return config


def _tmp_options(spec: ContainerSpec, *, podman: bool) -> str:
    # Executable on purpose: numba, torch and cffi compile into /tmp and map the result, and /out
    # is executable anyway.
    options = f"rw,nosuid,nodev,exec,size={spec.tmp_bytes},mode=1777"
    if podman:  # knows neither uid nor gid
        return options
    uid, _, gid = spec.user.partition(":")
    # The runtime gives the mount the mode of the image's own /tmp, which may be 0755: then only
    # its owner can write.
    return f"{options},uid={uid},gid={gid}" if uid.isdigit() and gid.isdigit() else options


def _mount(mount: Mount) -> dict[str, Any]:
    # The Mounts form refuses a missing source; the Binds form would create it, owned by root.
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }
