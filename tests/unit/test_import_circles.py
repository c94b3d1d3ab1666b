"""No module imports another one that imports it: every one can be read, and tested, by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.sealed import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in (ROOT / "runner").rglob("*.py")
}


def imported(path: Path) -> Iterator[str]:
    """Yield the runner's modules that one imports, late or early; those of types alone left out."""
    tree = ast.parse(path.read_bytes())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types:
            names = (node.module, *(f"{node.module}.{one.name}" for one in node.names))
            yield from (name for name in names if name in MODULES)


def test_no_imports_go_in_a_circle() -> None:
    graph = {name: set(imported(path)) for name, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # CycleError names a circle
    assert order.index("runner.errors") < order.index("runner.cli")
