"""What is wrong with a manifest, all of it at once, without an engine and without the data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.errors import SealbenchError, Where
from runner.imagelock import LOCAL_LOCK, PUBLISHED_LOCK, Locks, host_platform, load_locks
from runner.manifest import RunManifest, lint_freeze_manifest, lint_run_manifest
from runner.manifest_read import LIMIT_NAMES
from runner.model import Plan
from runner.modules import read_module
from runner.plan import Overrides, try_plan
from runner.protocol.splits import CALIBRATION, freeze_required
from runner.quantities import format_size_bytes
from runner.yamlstrict import MAX_BYTES

_FREEZE = re.compile(rb"^[\"']?schema[\"']?:\s*[\"']?sealbench/freeze/v1\b", re.MULTILINE)
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:api[_-]?key|secret|passwords?|passwd|(?:access|auth|bearer)[_-]?token|"
    r"private[_-]?key|credentials?)(?:[^a-z]|$)",
    re.IGNORECASE,
)
#: In a module's source: a name and the text that it gets; a private key; somebody's own folder.
_ASSIGNED = re.compile(r"""(\w+)["']?\s*[:=]\s*["'][^"']{8,}["']""")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|(?<![\w.])/(?:home|Users)/\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that ``check`` found. A warning does not keep a manifest from running."""

    level: Literal["error", "warning"]
    code: str
    message: str
    fix: str
    where: Where | None = None

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        where = self.where
        return {
            "level": self.level,
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
            "where": where
            and {
                "file": where.file,
                "line": where.line,
                "column": where.column,
                "json_path": where.json_path,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """All findings on one manifest; ``plan`` is there when a run manifest has no error."""

    path: Path
    kind: Literal["run", "freeze"]
    findings: tuple[Finding, ...]
    exit_code: int  # of the first error; 0 without one
    plan: Plan | None = None

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        return {
            "manifest": str(self.path),
            "kind": self.kind,
            "ok": self.exit_code == 0,
            "run_id": self.plan and self.plan.run_id,
            "units": self.plan and len(self.plan.units),
            "findings": [finding.as_dict() for finding in self.findings],
        }


def check_manifest(
    path: Path,
    *,
    lock_files: tuple[Path, Path] = (PUBLISHED_LOCK, LOCAL_LOCK),
    platform: str | None = None,
    overrides: Overrides | None = None,
) -> CheckReport:
    """Lint a run manifest (with its protocol and the image locks) or a freeze manifest.

    Raises nothing that is expected: every ``SealbenchError`` becomes a finding.
    """
    if _is_freeze(path):
        return _check_freeze(path)
    manifest, faults = lint_run_manifest(path)
    errors: list[SealbenchError] = list(faults)
    if manifest is None:
        return _report(path, "run", errors)
    protocol = _protocol(manifest, errors)
    try:
        locks = load_locks(*lock_files)
    except SealbenchError as error:
        errors.append(error)
        return _report(path, "run", errors, tuple(_warnings(manifest, None)))
    plan = None
    if protocol is not None:
        where = platform or host_platform()
        plan, found = try_plan(manifest, protocol, locks, where, overrides)
        errors += found
    plan = None if errors else plan
    return _report(path, "run", errors, tuple(_warnings(manifest, plan)), plan)


def load_plan(
    path: Path,
    *,
    locks: Locks | None = None,
    platform: str | None = None,
    overrides: Overrides | None = None,
) -> Plan:
    """Return the plan of a run manifest file; raise its first error."""
    from runner.manifest import load_run_manifest
    from runner.plan import build_plan
    from runner.protocol.load import load_protocol

    manifest = load_run_manifest(path)
    protocol = load_protocol(manifest.protocol).document
    chosen = load_locks() if locks is None else locks
    return build_plan(manifest, protocol, chosen, platform or host_platform(), overrides)


def _is_freeze(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return bool(_FREEZE.search(stream.read(MAX_BYTES)))
    except (OSError, ValueError):
        return False  # reading it as a run manifest says what is wrong


def _check_freeze(path: Path) -> CheckReport:
    from runner.protocol.freeze import check_metrics

    manifest, faults = lint_freeze_manifest(path)
    errors: list[SealbenchError] = list(faults)
    if manifest is not None:
        try:
            check_metrics(manifest)
        except SealbenchError as error:
            error.where = error.where or manifest.places.where("metrics")
            errors.append(error)
    return _report(path, "freeze", errors)


def _protocol(manifest: RunManifest, errors: list[SealbenchError]) -> Mapping[str, Any] | None:
    from runner.protocol.load import load_protocol

    try:
        return load_protocol(manifest.protocol).document
    except SealbenchError as error:
        errors.append(error)
        return None


def _report(
    path: Path,
    kind: Literal["run", "freeze"],
    errors: list[SealbenchError],
    warnings: tuple[Finding, ...] = (),
    plan: Plan | None = None,
) -> CheckReport:
    findings = tuple(
        Finding(level="error", code=e.code, message=e.message, fix=e.fix, where=e.where)
        for e in errors
    )
    code = errors[0].exit_code if errors else 0
    return CheckReport(
        path=path, kind=kind, findings=findings + warnings, exit_code=code, plan=plan
    )


def _warnings(manifest: RunManifest, plan: Plan | None) -> Iterator[Finding]:
    """Yield what will run but is hardly meant."""
    places = manifest.places
    for name in manifest.limits:
        if all(name in method.limits for method in manifest.methods):
            key = LIMIT_NAMES[name]
            where = places.where_key("limits", key)
            message = f"limits.{key} has no effect: every method sets its own"
            yield _warning("manifest.unused-limit", message, "remove one of them", where)
    if manifest.data_root is not None and not manifest.data_root.is_dir():
        message = f"data_root {manifest.data_root} is no folder here"
        fix = "correct it, or pass --data-root DIR (make: DATA_ROOT=DIR)"
        yield _warning("manifest.no-data-root", message, fix, places.where("data_root"))
    if plan is not None and _lacks_freeze(manifest, plan):
        message = "the held-out split is scored, and no configuration freeze is named"
        fix = (
            "`sealbench config freeze` on a calibration run; then config_freeze, or --config-freeze"
        )
        yield _warning("protocol.no-config-freeze", message, fix, places.where("splits"))
    for index, method in enumerate(manifest.methods):
        for key in method.config:
            if _SECRET.search(key):
                message = f"config {key!r} looks like a secret, and manifests are published"
                where = places.where_key("methods", index, "config", key)
                yield _warning("manifest.secret", message, "remove it", where)
        for at, argument in enumerate(method.command or ()):
            if _SECRET.search(argument):
                message = "the command looks like it holds a secret, and manifests are published"
                where = places.where("methods", index, "command", at)
                yield _warning("manifest.secret", message, "remove it", where)
    yield from _module_warnings(manifest)
    if plan is not None:
        yield from _plan_warnings(manifest, plan)


def _module_warnings(manifest: RunManifest) -> Iterator[Finding]:
    """Yield the first line of each file of a module that its author would hardly publish."""
    for entry, path in {(one.entry, one.module) for one in manifest.methods if one.module}:
        try:
            module = read_module(path, below=manifest.path.parent)
        except SealbenchError:
            continue  # an error, told elsewhere
        for file in module.files:
            for number, line in enumerate(file.data.decode().splitlines(), start=1):
                names = [match[1] for match in _ASSIGNED.finditer(line)]
                if _PRIVATE.search(line) or any(map(_SECRET.search, names)):
                    message = f"line {number} of {file.name} looks private, and the bundle has it"
                    where = manifest.places.where("methods", entry, "module")
                    yield _warning("manifest.private-module", message, "remove it", where)
                    break


def _lacks_freeze(manifest: RunManifest, plan: Plan) -> bool:
    required = freeze_required(plan.splits, (CALIBRATION,), tuned=manifest.tuned)
    return required and manifest.config_freeze is None


def _plan_warnings(manifest: RunManifest, plan: Plan) -> Iterator[Finding]:
    index = {method.name: at for at, method in enumerate(manifest.methods)}
    for method in plan.methods:
        limits, place = method.limits, ("methods", index[method.name])
        if method.image and limits.tmp_bytes + limits.shm_bytes >= limits.memory_bytes:
            memory = format_size_bytes(limits.memory_bytes)
            message = f"{method.name}: tmp and shm count as memory and can fill its {memory}"
            where = manifest.places.where(*place)
            yield _warning("manifest.tmp-fills-memory", message, "lower tmp or shm", where)
        if method.image is not None and not method.image.published:
            message = f"{method.name}: image {method.image.name} is only on this machine"
            fix = "publish it, or use the locked image, so that others can reproduce the run"
            where = manifest.places.where(*place, "image")
            yield _warning("image.not-published", message, fix, where)


def _warning(code: str, message: str, fix: str, where: Where) -> Finding:
    return Finding(level="warning", code=code, message=message, fix=fix, where=where)
