"""The virtual environment: made once from hash-locked requirements, checked in milliseconds after.

The package itself is reached through a ``.pth`` file and a launcher instead of ``pip install -e``:
that needs no build backend, so every byte that is installed stands in the lock by its hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.steps import SetupError, Step, quietly
from tools.system import Site, apt_install

LAYOUT = "1"  # change it when this module starts to lay an environment out differently
STAMP = "sealbench-stamp"
# Settings of the caller's that would send packages elsewhere than into the environment.
FOREIGN = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH")


def lock_path(root: Path, dev: bool) -> Path:
    """Return the lock of a set of requirements; ``dev`` contains ``run``."""
    return root / "requirements" / ("dev.lock" if dev else "run.lock")


def fingerprint(root: Path, dev: bool) -> str:
    """Identify an environment by its lock, its Python and its place (launchers name the place)."""
    parts = [
        LAYOUT.encode(),
        sys.version.encode(),
        sys.base_prefix.encode(),
        os.fsencode(root),
        lock_path(root, dev).read_bytes(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_ready(root: Path, venv: Path, dev: bool) -> bool:
    """Whether the environment has what is asked; one made for ``dev`` serves ``run`` too."""
    if not (venv / "bin" / "python").exists():  # also False for a link to a Python that is gone
        return False
    try:
        stamp = (venv / STAMP).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return stamp in {fingerprint(root, flag) for flag in ((True,) if dev else (True, False))}


def ensure(site: Site, step: Step, *, dev: bool) -> None:
    """Make the environment, or bring it up to date; nothing outside it is changed."""
    root, venv = site.root, site.venv
    if is_ready(root, venv, dev):
        step.done("up to date")
        return
    with _alone(site.logs / "environment.lock", step):
        if is_ready(root, venv, dev):  # made by the process that we waited for
            step.done("up to date")
            return
        if not _usable(venv):
            _create(site, step)
        (venv / STAMP).unlink(missing_ok=True)
        _install(site, lock_path(root, dev), step)
        link_source(root, venv)
        (venv / STAMP).write_text(fingerprint(root, dev) + "\n", encoding="ascii")
        step.done(f"ready in {venv.name}")


def _create(site: Site, step: Step) -> None:
    _need_ensurepip(site, step)
    step.working(f"creating {site.venv.name} with Python {sys.version.split()[0]}")
    command = [sys.executable, "-m", "venv", "--clear", str(site.venv)]
    log = site.logs / "venv.log"
    quietly(command, log, env=clean_env(site.env), fix="see the lines above")


def _install(site: Site, lock: Path, step: Step) -> None:
    step.working(f"installing from {lock.relative_to(site.root)}, each file checked by its hash")
    python = str(site.venv / "bin" / "python")
    command = [
        *(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"),
        *("--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)),
    ]
    fix = "check that your package index is reachable, then try again"
    quietly(command, site.logs / "pip.log", env=clean_env(site.env), fix=fix)


def link_source(root: Path, venv: Path) -> None:
    """Make the package importable in the environment and write its ``sealbench`` launcher."""
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(venv)}))
    (packages / "sealbench-source.pth").write_text(f"{root}\n", encoding="utf-8")
    launcher = venv / "bin" / "sealbench"
    # -P: a folder named `runner` where the user stands must not be taken for ours.
    python = shlex.quote(str(venv / "bin" / "python"))
    launcher.write_text(f'#!/bin/sh\nexec {python} -P -m runner.cli "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Drop the settings that would send packages elsewhere; index settings stay."""
    return {key: value for key, value in env.items() if key not in FOREIGN}


def _usable(venv: Path) -> bool:
    """Whether packages can be installed into what is there (same Python version, has pip)."""
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(venv)}))
    return (venv / "bin" / "python").exists() and (packages / "pip").is_dir()


def _need_ensurepip(site: Site, step: Step) -> None:
    # Debian ships it apart from Python itself.
    if importlib.util.find_spec("ensurepip") is not None:
        return
    package = f"python3.{sys.version_info.minor}-venv"
    if not site.system.can_install:
        raise SetupError(
            "this Python cannot make virtual environments: its module ensurepip is missing",
            fix=f"apt-get install {package} (or name another Python: make PYTHON=...)",
        )
    apt_install([package], site, step)
    importlib.invalidate_caches()


@contextmanager
def _alone(path: Path, step: Step) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            step.working("another set-up is under way in this folder; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
