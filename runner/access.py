"""What one unit's container is given beside inputs and outputs: a way out, secrets, recordings, a
module of its author's.

Each is a mount, made in the unit's private work folder and gone with it. The file of a secret has
mode 0400, belongs to the container's user, and is removed from the host as soon as the container
has started: the mount keeps it readable inside.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.engine.api import Mount
from runner.errors import DataError, KeyError_
from runner.imports import open_import
from runner.model import ImportedFile, MethodPlan, NetworkUse, Plan
from runner.modules import MOUNTED, Module
from runner.parts import storage_error
from runner.secret_refs import Secret, load_secrets
from runner.secret_scan import Needles

if TYPE_CHECKING:
    from runner.egress.proxy import Proxy
    from runner.manifest import RunManifest

SOCKET = "/run/sealbench/proxy.sock"
SECRETS = "/run/secrets"
RECORDING = "/recordings/responses.jsonl"
#: A recording is what one unit may leave behind; nothing larger was ever carried.
MAX_RECORDING = 1 << 30
_BLOCK = 1 << 20


class Withheld(Exception):
    """Something that a unit needs cannot be given; the message says what, for its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a method gets from outside the plan: values of secrets, files of recordings by
    dataset, the files of its module. ``Given()`` for a method that gets nothing."""

    secrets: tuple[Secret, ...] = ()
    recordings: Mapping[str, Path] = field(default_factory=dict)
    module: Module | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Mounts and environment of one container. ``passing``: files to remove once it has started.

    ``needles`` is None where there is nothing to hide.
    """

    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[Path, ...] = ()
    needles: Needles | None = None
    proxy: Proxy | None = None

    def use(self) -> NetworkUse | None:
        """What went through the proxy; None where there is none."""
        return None if self.proxy is None else self.proxy.use()


def given_to_methods(
    manifest: RunManifest, plan: Plan, modules: Mapping[str, Module]
) -> dict[str, Given]:
    """Read the secrets of a plan's methods, find their recordings and modules; by method name.

    ``modules`` has the plan's by digest. Raises ``KeyError_`` for a secret that cannot be had, or
    that a module holds: before anything was started.
    """
    specs = {spec.name: spec for spec in manifest.methods}
    found = {
        method.name: Given(
            secrets=load_secrets(specs[method.name].secrets),
            recordings={
                file.dataset: specs[method.name].recording_path(file.dataset)
                for file in method.recordings
            },
            module=None if method.module is None else modules[method.module],
        )
        for method in plan.methods
        if method.secrets or method.recordings or method.module is not None
    }
    _refuse_published([one for given in found.values() for one in given.secrets], modules)
    return found


def _refuse_published(secrets: Iterable[Secret], modules: Mapping[str, Module]) -> None:
    """Refuse modules with a secret of the run in them: a bundle publishes modules."""
    needles = Needles(secrets)
    for file in (file for module in modules.values() for file in module.files):
        name = needles.find(file.data)
        if name is not None:
            raise KeyError_(
                "key.secret-in-module",
                f"{file.name} of a module holds the secret {name}, and a bundle publishes modules",
                fix="remove it there, and give it a new value: it may have been copied already",
            )


def network_notes(plan: Plan) -> list[str]:
    """What the results must say about methods that could reach a network, or replayed one."""
    return [
        f"{method.name} could reach {', '.join(method.network.allow)}: its scores depend on what "
        "answered there"
        for method in plan.methods
        if method.network is not None
    ] + [
        f"{method.name} replays what an earlier run recorded"
        for method in plan.methods
        if method.recordings
    ]


@contextmanager
def open_access(
    method: MethodPlan, dataset: str, given: Given, folder: Path, user: str
) -> Iterator[Access]:
    """Prepare a unit's access in an existing folder of its own, and serve its proxy meanwhile.

    ``user`` is the container's, "uid:gid". Raises ``Withheld`` for a recording that is no longer
    the planned one and a module that cannot be copied unchanged, ``StorageError`` when the folder
    cannot be written.
    """
    needles = Needles(given.secrets) if given.secrets else None
    uid, gid = (int(part) for part in user.split(":"))
    owner = (uid, gid) if os.geteuid() == 0 else None
    try:
        passing = [_write_secret(folder, secret, owner) for secret in given.secrets]
        mounts = [
            Mount(source=path, target=f"{SECRETS}/{secret.name}", read_only=True)
            for path, secret in zip(passing, given.secrets, strict=True)
        ]
        env: dict[str, str] = {}
        planned = next((file for file in method.recordings if file.dataset == dataset), None)
        if planned is not None:
            copy = _copy_recording(given.recordings[dataset], planned, folder / "recording.jsonl")
            mounts.append(Mount(source=copy, target=RECORDING, read_only=True))
            env["SEALBENCH_RECORDINGS"] = RECORDING
        if given.module is not None:
            source = _copy_module(given.module, folder / "module")
            mounts.append(Mount(source=source, target=MOUNTED, read_only=True))
        proxy = _proxy(method, folder, owner, needles)
    except OSError as error:
        raise storage_error(error) from error
    if proxy is not None:
        mounts.append(Mount(source=folder / "proxy.sock", target=SOCKET, read_only=True))
        env["SEALBENCH_PROXY"] = SOCKET
    try:
        yield Access(
            mounts=tuple(mounts), env=env, passing=tuple(passing), needles=needles, proxy=proxy
        )
    finally:
        if proxy is not None:
            proxy.close()
        for path in passing:
            path.unlink(missing_ok=True)


def _copy_module(module: Module, target: Path) -> Path:
    try:
        module.copy_to(target)
    except (ValueError, DataError) as error:
        raise Withheld("its module could not be copied unchanged") from error
    return target


def _proxy(
    method: MethodPlan, folder: Path, owner: tuple[int, int] | None, needles: Needles | None
) -> Proxy | None:
    if method.network is None:
        return None
    from runner.egress.proxy import Proxy

    hide = None if needles is None else needles.hide
    proxy = Proxy(folder / "proxy.sock", method.network, owner=owner, hide=hide)
    proxy.start()
    return proxy


def _write_secret(folder: Path, secret: Secret, owner: tuple[int, int] | None) -> Path:
    path = folder / f"secret-{secret.name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o400), "wb") as stream:
        os.fchmod(stream.fileno(), 0o400)
        if owner is not None:
            os.fchown(stream.fileno(), *owner)
        stream.write(secret.value)
    return path


def _copy_recording(source: Path, planned: ImportedFile, target: Path) -> Path:
    """Copy a recording for the container's user to read, and see that it is the planned one."""
    digest, size = hashlib.sha256(), 0
    try:
        stream = open_import(source)
    except DataError as error:
        raise Withheld(f"its recording for {planned.dataset} cannot be read") from error
    with stream, target.open("xb") as copy:
        while size <= MAX_RECORDING and (block := stream.read(_BLOCK)):
            digest.update(block)
            copy.write(block)
            size += len(block)
        os.fchmod(copy.fileno(), 0o444)
    if size > MAX_RECORDING:
        raise Withheld(f"its recording for {planned.dataset} is larger than {MAX_RECORDING} bytes")
    if f"sha256:{digest.hexdigest()}" != planned.sha256:
        raise Withheld(f"its recording for {planned.dataset} was changed since the run was planned")
    return target
