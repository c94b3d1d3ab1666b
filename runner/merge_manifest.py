"""The run.yaml of a merged bundle: every setting of the merged plan, said outright.

Image, declared method and places of secrets stand as the merged bundles' own manifests have them,
since a plan holds only what they resolved to; all else is the plan's. Values are JSON, which is
YAML, with characters escaped that YAML readers refuse or read otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from runner.config_freeze import FILE as FREEZE
from runner.manifest import MethodSpec
from runner.manifest_read import LIMIT_NAMES
from runner.model import Limits, MethodPlan, Plan
from runner.modules import sealed_folder
from runner.quantities import format_limit

_NOT_PLAIN = re.compile(r"[^ -~]")


def run_yaml(plan: Plan, specs: Mapping[str, MethodSpec], *, tuned: bool, frozen: bool) -> bytes:
    """Return the manifest of a merged plan. ``specs`` has each method's entry by name; ``frozen``:
    the bundle carries a configuration freeze."""
    top: dict[str, object] = {
        "schema": "sealbench/run/v1",
        "name": plan.name,
        "protocol": "protocol.json",
        "protocol_id": plan.protocol_id,
        "splits": list(plan.splits),
        "tuned": tuned,
        **({"config_freeze": FREEZE} if frozen else {}),
        "seed": plan.seed,
        "repeats": plan.repeats,
        "jobs": plan.jobs,
        **({} if plan.baseline is None else {"baseline": plan.baseline}),
    }
    lines = ["# Written by `sealbench merge` from the merged bundles' plans and manifests."]
    lines += [f"{key}: {_value(value)}" for key, value in top.items()]
    lines.append("methods:")
    for method in plan.methods:
        lines += _item(method, specs[method.name])
    return ("\n".join(lines) + "\n").encode("utf-8")


def _item(method: MethodPlan, spec: MethodSpec) -> Iterator[str]:
    mark = "  - "
    for key, value in _entry(method, spec).items():
        yield f"{mark}{key}: {_value(value)}"
        mark = "    "


def _entry(method: MethodPlan, spec: MethodSpec) -> dict[str, object]:
    """A method's entry; what it has none of is left out, as its absence means just that."""
    entry: dict[str, object] = {"name": method.name, "image": spec.image}
    if spec.method is not None:
        entry["method"] = spec.method
    if spec.command is not None:
        entry["command"] = list(method.command)
    entry |= {
        "config": dict(method.config),
        "limits": limits_of(method.limits),
        "cache": method.cache,
        "waive": list(method.waive),
        "expect": method.expect.value,
    }
    if spec.secrets:
        entry["secrets"] = {
            ref.name: {"env": ref.env} if ref.file is None else {"file": ref.file.as_posix()}
            for ref in spec.secrets
        }
    if method.models:
        entry["models"] = [asdict(pin) for pin in method.models]
    if method.requires:
        entry["requires"] = list(method.requires)
    if method.module is not None:
        entry["module"] = sealed_folder(method.module)
    return entry


def limits_of(limits: Limits) -> dict[str, str | float]:
    """Limits as a manifest writes them: counts are numbers, all else has a unit."""
    found: dict[str, str | float] = {}
    for field, value in asdict(limits).items():
        counted = field in ("pids", "output_files")
        text: str | float = value if counted else format_limit(field, value)
        found[LIMIT_NAMES[field]] = value / 1000 if field == "cpus_milli" else text
    return found


def _value(value: object) -> str:
    """Return a JSON value in characters that every YAML reader takes as they are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _NOT_PLAIN.sub(lambda found: f"\\U{ord(found[0]):08x}", text)
