"""Pure: the engine's answers to ``version`` and ``info`` -> ``EngineInfo``; an image's -> its own.

Every field is read with a fallback, since engines leave some out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.engine.api import EngineInfo, ImageInfo
from runner.engine.limits import EngineFlags, unenforceable

Answer = Mapping[str, Any]


def engine_info(version: Answer, info: Answer) -> EngineInfo:
    """``version`` is ``GET /version``, ``info`` is ``GET /info``."""
    components = {
        str(part.get("Name", "")): str(part.get("Version", ""))
        for part in version.get("Components") or ()
    }
    podman = is_podman(version)
    security = tuple(str(option) for option in info.get("SecurityOptions") or ())
    rootless = any(option.split(",")[0] == "name=rootless" for option in security)
    runtime = str(info.get("DefaultRuntime") or "unknown")
    cgroup_version = _cgroup_version(info.get("CgroupVersion"))
    driver = str(info.get("CgroupDriver") or "none")
    flags = EngineFlags(
        memory=bool(info.get("MemoryLimit")),
        swap=bool(info.get("SwapLimit")),
        # Podman leaves the last two out of its answer, and enforces both wherever it does memory.
        pids=bool(info.get("PidsLimit", podman and bool(info.get("MemoryLimit")))),
        cpus=bool(info.get("CpuCfsQuota", podman and bool(info.get("MemoryLimit")))),
        rootless=rootless,
        cgroup_version=cgroup_version,
        cgroup_driver=driver,
    )
    return EngineInfo(
        name="podman" if podman else "docker",
        version=str(version.get("Version") or "unknown"),
        api_version=str(version.get("ApiVersion") or "unknown"),
        os=str(version.get("Os") or info.get("OSType") or "linux"),
        architecture=_architecture(str(version.get("Arch") or info.get("Architecture") or "")),
        kernel=str(version.get("KernelVersion") or info.get("KernelVersion") or "unknown"),
        cgroup_version=cgroup_version,
        cgroup_driver=driver,
        storage_driver=str(info.get("Driver") or "unknown"),
        runtime=runtime,
        runtime_version=_runtime_version(runtime, components),
        rootless=rootless,
        cpus=int(info.get("NCPU") or 0),
        memory_bytes=int(info.get("MemTotal") or 0),
        data_root=str(info["DockerRootDir"]) if info.get("DockerRootDir") else None,
        unenforceable=tuple(item.name for item in unenforceable(flags)),
    )


def is_podman(version: Answer) -> bool:
    """Does Podman answer, through the API that it shares with Docker?"""
    parts = version.get("Components") or ()
    return any("podman" in str(part.get("Name", "")).lower() for part in parts)


def image_info(answer: Answer) -> ImageInfo:
    """``answer`` is ``GET /images/<reference>/json``."""
    config = answer.get("Config") or {}
    return ImageInfo(
        image_id=_with_algorithm(str(answer["Id"])),
        repo_digests=tuple(sorted(str(item) for item in answer.get("RepoDigests") or ())),
        architecture=_architecture(str(answer.get("Architecture") or "")),
        os=str(answer.get("Os") or "linux"),
        size_bytes=int(answer.get("Size") or 0),
        labels={str(key): str(value) for key, value in (config.get("Labels") or {}).items()},
        command=tuple(config.get("Cmd") or ()),
        volumes=tuple(sorted(str(path) for path in config.get("Volumes") or ())),
    )


def _with_algorithm(digest: str) -> str:
    # Podman leaves the algorithm out.
    return digest if ":" in digest else f"sha256:{digest}"


def _cgroup_version(value: object) -> int:
    # Engines older than API 1.41 know version 1 only, and do not say so.
    return 2 if str(value) in ("2", "v2") else 1


def _architecture(name: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(name, name) or "unknown"


def _runtime_version(runtime: str, components: Mapping[str, str]) -> str:
    """``1.1.5+ds1``; Podman passes on all that its runtime prints, build options included."""
    for name, value in components.items():
        if runtime in name.lower():
            words = (value.splitlines() or [""])[0].split()
            return words[-1] if words else "unknown"
    return "unknown"
