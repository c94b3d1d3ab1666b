"""The tasks that a benchmark can have: one module each, found by name.

To add a task, write a module with the functions of ``api.Task`` and name it in ``_MODULES``.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from runner.errors import ProtocolError
from runner.tasks.api import Task

_MODULES = {
    "retrieval": "runner.tasks.retrieval",
    "pair": "runner.tasks.pair",
    "expertise": "runner.tasks.expertise",
}
#: A benchmark's category -> the tasks that its datasets may have; the first one sets the rules.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "retrieval": ("retrieval",),
    "plagiarism": ("pair", "retrieval"),
    "expertise": ("expertise",),
}


def tasks_of(category: str) -> tuple[str, ...]:
    """Return the tasks of a benchmark's category; ``ProtocolError`` for a name that is none."""
    if category not in CATEGORIES:
        raise ProtocolError(
            "protocol.unknown-category",
            f"no category {category!r}",
            fix=f"use one of: {', '.join(CATEGORIES)}",
        )
    return CATEGORIES[category]


def task_module(name: str) -> Task:
    """Return the module of a task; raise ``ProtocolError`` for a name that is none."""
    if name not in _MODULES:
        raise ProtocolError(
            "protocol.unknown-task",
            f"no task {name!r}",
            fix=f"use one of: {', '.join(_MODULES)}",
        )
    return cast(Task, import_module(_MODULES[name]))
