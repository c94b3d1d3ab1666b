"""One method of a manifest -> one ``MethodPlan``: image, command, config and limits all decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runner.canonical import Json
from runner.errors import DataError, ImageError, ManifestError, ProtocolError, SealbenchError
from runner.ids import given_to, method_id, precomputed_id
from runner.imagelock import Locks, MethodDeclaration, declared_methods, resolve_image
from runner.imports import digest_file
from runner.manifest import MethodSpec, RunManifest
from runner.manifest_read import LIMIT_NAMES
from runner.model import ImagePin, ImportedFile, Limits, MethodPlan
from runner.modules import read_module
from runner.quantities import format_limit
from runner.schema_faults import shown, suggest
from runner.yamlstrict import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Collects errors with their places in a manifest, so that all are told at once."""

    places: Places
    found: list[SealbenchError] = field(default_factory=list)

    def add(
        self,
        kind: type[SealbenchError],
        code: str,
        message: str,
        fix: str,
        path: Sequence[str | int],
    ) -> None:
        self.found.append(kind(code, message, fix=fix, where=self.places.where(*path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a method is resolved against: ``datasets`` are the names of the protocol's, ``tasks``
    their tasks."""

    locks: Locks
    platform: str
    budget: Limits
    datasets: tuple[str, ...]
    tasks: tuple[str, ...]


def resolve_method(
    manifest: RunManifest, index: int, around: Surroundings, errors: Errors
) -> MethodPlan | None:
    """Return method ``index`` with nothing left open, or None after adding to ``errors``."""
    spec, before = manifest.methods[index], len(errors.found)
    path = ("methods", spec.entry)
    refuse_over_budget(spec.limits, around.budget, errors, (*path, "limits"))
    if spec.image is None:
        return _precomputed(manifest, spec, around, errors, (*path, "precomputed"))
    try:
        pin = resolve_image(spec.image, around.locks, around.platform)
    except ImageError as error:
        errors.add(ImageError, error.code, error.message, error.fix, (*path, "image"))
        return None
    declared = _declaration(spec, pin, around, errors, path)
    config = _config(spec, declared, errors, (*path, "config"))
    recordings = _recordings(spec, around, errors, (*path, "recordings"))
    module = _module(manifest, spec, declared, errors)
    if len(errors.found) > before:
        return None
    command = spec.command or (declared.command if declared else ())
    cache = spec.cache if spec.cache is not None else bool(declared and declared.cache)
    given = given_to(spec.network, recordings, spec.models, module)
    return MethodPlan(
        name=spec.name,
        method_id=method_id(pin, command, config, cache=cache, given=given),
        image=pin,
        command=command,
        config=config,
        limits=effective_limits(around.budget, manifest.limits, spec.limits),
        cache=cache,
        waive=tuple(sorted({*manifest.waive, *spec.waive})),
        expect=spec.expect,
        network=spec.network,
        secrets=tuple(ref.name for ref in spec.secrets),
        recordings=recordings,
        models=spec.models,
        requires=spec.requires,
        declares=declared.declares if declared and spec.command is None else {},
        module=module,
    )


def _precomputed(
    manifest: RunManifest,
    spec: MethodSpec,
    around: Surroundings,
    errors: Errors,
    path: Sequence[str | int],
) -> MethodPlan | None:
    """Return a method that is not executed: its files are hashed, for they are what it is."""
    if spec.pin is None:
        files = _hashed(spec.imported_path, around, errors, path)
    else:  # compared when the rows are taken: the plan needs no file
        files = tuple(
            ImportedFile(dataset=name, sha256=spec.pin.sha256, size=spec.pin.size)
            for name in around.datasets
        )
    if not files:
        return None
    return MethodPlan(
        name=spec.name,
        method_id=precomputed_id(files),
        image=None,
        command=(),
        config={},
        limits=effective_limits(around.budget, manifest.limits, {}),
        expect=spec.expect,
        precomputed=files,
    )


def _module(
    manifest: RunManifest, spec: MethodSpec, declared: MethodDeclaration | None, errors: Errors
) -> str | None:
    """Return the digest of a method's module; None for a method that takes none."""
    takes = declared is not None and declared.module and spec.command is None
    path = ("methods", spec.entry)
    if spec.module is None:
        if takes:
            message = f"{spec.name} runs a module of its author's, and names none"
            fix = "add `module` with the path of a .py file that defines score(left, right)"
            errors.add(ManifestError, "manifest.no-module", message, fix, path)
        return None
    if not takes:
        message = f"{spec.name} runs no method that takes a module"
        fix = "write image: code and method: custom, without `command`; or remove `module`"
        errors.add(ManifestError, "manifest.module-not-taken", message, fix, (*path, "module"))
        return None
    try:
        return read_module(spec.module, below=manifest.path.parent).digest
    except DataError as error:
        errors.add(DataError, error.code, error.message, error.fix, (*path, "module"))
        return None


def _recordings(
    spec: MethodSpec, around: Surroundings, errors: Errors, path: Sequence[str | int]
) -> tuple[ImportedFile, ...]:
    return () if spec.recordings is None else _hashed(spec.recording_path, around, errors, path)


def _hashed(
    path_of: Callable[[str], Path],
    around: Surroundings,
    errors: Errors,
    path: Sequence[str | int],
) -> tuple[ImportedFile, ...]:
    """Return the digests of one file for each dataset; nothing after adding to ``errors``."""
    found: dict[Path, tuple[str, int]] = {}
    for name in around.datasets:
        try:
            file = path_of(name)
            if file not in found:
                found[file] = digest_file(file)
        except DataError as error:
            errors.add(DataError, error.code, error.message, error.fix, path)
            return ()
    return tuple(
        ImportedFile(dataset=name, sha256=sha256, size=size)
        for name in around.datasets
        for sha256, size in [found[path_of(name)]]
    )


def effective_limits(budget: Limits, *stated: Mapping[str, int]) -> Limits:
    """Return the limits that hold: the smaller of default and budget, then what is stated."""
    default = asdict(Limits())
    values = {name: min(default[name], most) for name, most in asdict(budget).items()}
    for limits in stated:
        values.update(limits)
    return Limits(**values)


def refuse_over_budget(
    stated: Mapping[str, int], budget: Limits, errors: Errors, path: Sequence[str | int]
) -> None:
    """Add an error for every stated limit that is more than the protocol grants."""
    for name, value in stated.items():
        most = getattr(budget, name)
        if value > most:
            key, granted = LIMIT_NAMES[name], format_limit(name, most)
            message = f"{key} {format_limit(name, value)} is above the protocol's budget, {granted}"
            fix = f"ask for at most {granted}"
            errors.add(ProtocolError, "protocol.over-budget", message, fix, (*path, key))


def _declaration(
    spec: MethodSpec,
    pin: ImagePin,
    around: Surroundings,
    errors: Errors,
    path: tuple[str | int, ...],
) -> MethodDeclaration | None:
    """Return what the image declares of this method; None where the manifest says it all."""
    methods = declared_methods(pin, around.locks)
    declared = methods.get(spec.method or spec.name)
    known = f"declared methods: {', '.join(sorted(methods))}" if methods else "it declares none"
    if declared is None and spec.method is not None:
        message = f"image {pin.name} declares no method {spec.method!r}"
        message += suggest(spec.method, list(methods))
        fix = f"leave out `method` and give `command`; {known}"
        errors.add(ManifestError, "manifest.unknown-method", message, fix, (*path, "method"))
    elif declared is None and spec.command is None:
        message = f"nothing says what {spec.name!r} runs{suggest(spec.name, list(methods))}"
        fix = f"give `command`, or `method` with one that image {pin.name} declares ({known})"
        errors.add(ManifestError, "manifest.no-command", message, fix, path)
    elif declared is not None:
        for task in sorted({*around.tasks} - {*declared.tasks}):
            message = f"{spec.name} is a method for {', '.join(declared.tasks)}, not for {task}"
            fix = "choose another method, or another protocol"
            errors.add(ManifestError, "manifest.wrong-task", message, fix, path)
    return declared


def _config(
    spec: MethodSpec,
    declared: MethodDeclaration | None,
    errors: Errors,
    path: tuple[str | int, ...],
) -> dict[str, Json]:
    """Return the effective config: declared defaults under the manifest's values."""
    if declared is None:
        return dict(spec.config)
    for key, value in spec.config.items():
        if key not in declared.config and declared.module and not _near(key, declared):
            continue  # the module's own
        if key not in declared.config:
            known = sorted(declared.config)
            message = f"{spec.name} has no setting {key!r}{suggest(key, known)}"
            fix = f"use one of: {', '.join(known)}" if known else "remove it: there are no settings"
            errors.add(ManifestError, "manifest.unknown-config", message, fix, (*path, key))
        elif not same_type(declared.config[key], value):
            wanted = _type_name(declared.config[key])
            message = f"{key} is {shown(value)}, and its default is {shown(declared.config[key])}"
            fix = f"give {wanted}"
            errors.add(ManifestError, "manifest.config-type", message, fix, (*path, key))
    return {**declared.config, **spec.config}


def _near(key: str, declared: MethodDeclaration) -> bool:
    """Is this rather a declared setting, misspelt?"""
    return bool(suggest(key, sorted(declared.config)))


def same_type(default: Json, value: Json) -> bool:
    """Tell whether a value may stand for a default.

    A whole number may stand for a float and anything for null; a float may not stand for a whole
    number, nor a boolean for a number.
    """
    if default is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    return type(default) is type(value)


def _type_name(default: Json) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    names |= {list: "a list", dict: "a mapping"}
    return names[type(default)]
