"""Roots with the cgroup mounts of kernels of both versions, for tests of their readers."""

from __future__ import annotations

from pathlib import Path

from runner.engine.cgroup_files import find_mounts

V1 = b"""\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices
39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V2 = b"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def machine(root: Path, mountinfo: bytes) -> Path:
    """A root with the mounts of a kernel and what leases need."""
    put(root, {"proc/self/mountinfo": mountinfo.decode()})
    put(root, {"proc/sys/kernel/random/boot_id": "boot\n"})
    for mount in find_mounts(root).every:
        mount.mkdir(parents=True, exist_ok=True)
    return root
