"""What a method's declaration comes to under its own config and models. Pure.

An image declares what holds with its defaults, and names the settings that decide otherwise. What
depends on files that are mounted is theirs to say, and is None here.
"""

from __future__ import annotations

from typing import cast

from runner.canonical import Json
from runner.model import MethodPlan

IN_IMAGE, MOUNTED, TRAINED = "in the image", "mounted", "trained in the container"
#: Members that are copied as they are where a method declares them.
_TEXTS = ("truncation", "training")


def exactness(method: MethodPlan) -> str:
    """Return how surely the best documents are found; nothing is assumed."""
    exact = method.declares.get("exact")
    if exact is True and "fused_depth" in method.declares:
        return "exact to a depth"
    return {True: "exact", False: "approximate"}.get(cast("bool", exact), "not declared")


def fused_depth(method: MethodPlan, top_k: int) -> int | None:
    """Return how far each list goes that is fused, at least ``top_k``; None: nothing is fused."""
    depth = _effective(method, "fused_depth")
    return None if depth is None else max(depth, top_k)


def vectors(method: MethodPlan) -> dict[str, Json] | None:
    """Return what is known of a method's vectors; None where it declares none."""
    declared = method.declares
    if not {"dimensions", "normalised"} & declared.keys():
        return None
    origin = _origin(method)
    mounted = origin == MOUNTED
    by_model = declared.get("normalised_by", "model") == "model"
    found: dict[str, Json] = {
        "model": origin,
        "dimensions": None if mounted else _effective(method, "dimensions"),
        "normalised": None if mounted and by_model else declared.get("normalised"),
    }
    packaged = declared.get("model")
    if origin == IN_IMAGE and isinstance(packaged, dict):
        found["packaged"] = _packaged(packaged)
    return found | {name: declared[name] for name in _TEXTS if name in declared}


def _origin(method: MethodPlan) -> str:
    declared = method.declares
    source, packaged = declared.get("source"), declared.get("model")
    if source in {"mounted", "trained"}:
        return MOUNTED if source == "mounted" else TRAINED
    if not isinstance(packaged, dict):
        return MOUNTED if method.models else IN_IMAGE
    own = packaged["known_as"]
    asked = method.config.get(str(_setting(method, "model")), own)
    # A mounted model goes before the one in the image, whatever their names are.
    return IN_IMAGE if asked == own and own not in {pin.name for pin in method.models} else MOUNTED


def _packaged(declared: dict[str, Json]) -> dict[str, Json]:
    """Name the model; a revision that nobody can prove is null, with the reason."""
    kept = ("name", "package", "package_version", "digest", "max_tokens")
    return {
        **{name: declared[name] for name in kept},
        "revision": declared.get("revision"),
        "because": declared.get("no_revision"),
    }


def _effective(method: MethodPlan, member: str) -> int | None:
    setting = _setting(method, member)
    value = method.declares.get(member)
    if setting is not None:
        value = method.config.get(setting, value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _setting(method: MethodPlan, member: str) -> str | None:
    settings = method.declares.get("settings")
    name = settings.get(member) if isinstance(settings, dict) else None
    return name if isinstance(name, str) else None
