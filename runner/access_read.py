"""What a run manifest gives a method beside its inputs: hosts, secrets, model files, a module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from runner.egress.targets import entry_problem, parse_target
from runner.manifest_read import Faults
from runner.model import ModelPin, NetworkPolicy
from runner.quantities import parse_size_bytes
from runner.secret_refs import SecretRef


def read_network(
    entry: Mapping[str, Any], faults: Faults, *path: str | int
) -> NetworkPolicy | None:
    """Return the policy of a method's entry, hosts in canonical form; None where there is none."""
    stated = entry.get("network")
    if stated is None:
        return None
    allow = []
    for index, text in enumerate(stated["allow"]):
        try:
            target = parse_target(text)
            problem = entry_problem(target)
        except ValueError as error:
            problem = str(error)
        if problem is None:
            allow.append(str(target))
        else:
            message = f"{text!r} cannot be allowed: {problem}"
            fix = "name each host, with its port unless it is 443: llm.example.org:8443"
            faults.add("bad-host", message, fix, *path, "network", "allow", index)
    if len(allow) == len(stated["allow"]):
        faults.unique("host", allow, *path, "network", "allow")
    policy = NetworkPolicy(allow=tuple(sorted(set(allow))))
    if "bytes" not in stated:
        return policy
    return NetworkPolicy(allow=policy.allow, max_bytes=parse_size_bytes(stated["bytes"]))


def read_secrets(
    entry: Mapping[str, Any], base: Path, faults: Faults, *path: str | int
) -> tuple[SecretRef, ...]:
    """Return the references of a method's entry, by name."""
    found = []
    for name, where in sorted(entry.get("secrets", {}).items()):
        file = where.get("file")
        place = (*path, "secrets", name, "file")
        given = None if file is None else faults.relative_path(file, base, *place)
        found.append(SecretRef(name=name, file=given, env=where.get("env")))
    return tuple(found)


def read_models(entry: Mapping[str, Any], faults: Faults, *path: str | int) -> tuple[ModelPin, ...]:
    """Return the model files of a method's entry, sorted by name."""
    stated = entry.get("models", ())
    pins = [ModelPin(name=m["name"], revision=m["revision"], digest=m["digest"]) for m in stated]
    faults.unique("model", [pin.name for pin in pins], *path, "models")
    if entry.get("requires") and not pins:
        message = "requires weights, and names no model"
        fix = "add `models` with name, revision and digest, or remove `requires`"
        faults.add("no-models", message, fix, *path, "requires")
    return tuple(sorted(pins, key=lambda pin: pin.name))


def read_module_path(
    entry: Mapping[str, Any], base: Path, faults: Faults, *path: str | int
) -> Path | None:
    """Return where a method's own Python lies; what the path leads to is looked at later."""
    text = entry.get("module")
    if text is None:
        return None
    if ".." in PurePosixPath(text).parts:
        message = f"{text!r} leads out of the manifest's folder, and modules are published"
        fix = "put the module beside the manifest or below it"
        faults.add("module-path", message, fix, *path, "module")
    return faults.relative_path(text, base, *path, "module")
