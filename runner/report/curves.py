"""Which methods of a plan lie on curves: equal but for one number in their settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.canonical import canonical_bytes
from runner.model import MethodPlan

#: Fewer points are no curve.
MIN_POINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCurve:
    """Methods in ascending order of one setting; ``label`` says what tells it from the others."""

    setting: str
    label: str
    points: tuple[tuple[float, str], ...]  # (value, method's name)


def curves_of(methods: Sequence[MethodPlan]) -> dict[str, list[MethodCurve]]:
    """Return setting -> curves over it, for every setting that some methods differ in alone."""
    found: dict[str, list[MethodCurve]] = {}
    for setting in sorted({key for method in methods for key in method.config}):
        groups: dict[bytes, list[MethodPlan]] = {}
        for method in methods:
            if _is_number(method.config.get(setting)) and method.image is not None:
                groups.setdefault(_rest(method, setting), []).append(method)
        kept = [group for group in groups.values() if _distinct(group, setting) >= MIN_POINTS]
        if kept:
            found[setting] = [_curve(group, setting, _differing(kept, setting)) for group in kept]
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rest(method: MethodPlan, setting: str) -> bytes:
    config = {key: value for key, value in method.config.items() if key != setting}
    return canonical_bytes(
        {"image": method.pin.digest, "command": list(method.command), "config": config}
    )


def _distinct(group: Iterable[MethodPlan], setting: str) -> int:
    return len({_value(method, setting) for method in group})


def _value(method: MethodPlan, setting: str) -> float:
    value: Any = method.config[setting]
    return float(value)


def _differing(groups: Sequence[Sequence[MethodPlan]], setting: str) -> list[str]:
    """Return the settings in which the groups differ."""
    configs: list[Mapping[str, Any]] = [group[0].config for group in groups]
    keys = sorted({key for config in configs for key in config} - {setting})
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]


def _curve(group: Sequence[MethodPlan], setting: str, differing: Sequence[str]) -> MethodCurve:
    first = group[0]
    module = first.command[-1].rpartition(".")[2] if first.command else first.name
    said = [f"{first.config[key]}" for key in differing if key in first.config]
    ordered = sorted(group, key=lambda method: _value(method, setting))
    return MethodCurve(
        setting=setting,
        label=" ".join([module, *said]),
        points=tuple((_value(method, setting), method.name) for method in ordered),
    )
