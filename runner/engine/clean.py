"""Removes what dead runs left behind, and nothing else.

A container is ours by its label and its name together: labels alone may come from an image, one
that was committed from a container of ours or one that is out to have others' containers removed.
It is left over when the process that owns its lease is dead, or cannot be judged from here and the
lease has expired. A live owner keeps its containers, expired or not: its own deadline ends them.
Unfinished output folders are listed and left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.engine.api import ContainerSummary, Engine
from runner.engine.cgroups import orphaned_groups, remove_group
from runner.engine.lease import (
    LEASE,
    NAME,
    RUN,
    UNIT,
    Owner,
    expired,
    owner_state,
    parse_lease,
)
from runner.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One container of ours. ``removed`` is False in a dry run too."""

    container_id: str
    name: str
    status: str
    run_id: str
    unit_id: str
    owner: Owner
    expired: bool
    stale: bool
    removed: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """What was found and what was done. ``groups`` maps orphaned control groups to "it went"."""

    dry_run: bool
    containers: tuple[Leftover, ...]
    groups: tuple[tuple[str, bool], ...]
    partial_folders: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Is nothing stale left?"""
        return all(item.removed or not item.stale for item in self.containers) and all(
            gone for _, gone in self.groups
        )


def sweep(
    engine: Engine,
    *,
    dry_run: bool,
    folders: Iterable[Path] = (),
    root: Path = Path("/"),
    now: Callable[[], float] = time.time,
) -> CleanReport:
    """Remove stale containers and orphaned control groups.

    ``folders`` are looked through for ``.partial-*``, which stay: they may hold the only rows of
    an interrupted run. ``root`` stands in for ``/`` in tests. Raises ``EngineError`` only when the
    engine cannot be listed; a container that does not go is reported.
    """
    found = [item for item in engine.containers({RUN: ""}) if item.name.startswith(NAME)]
    containers = tuple(
        _sweep_one(engine, item, dry_run=dry_run, root=root, now=now()) for item in found
    )
    # After the containers: a group with a process in it does not go.
    groups = tuple(
        (str(folder), False if dry_run else remove_group(folder))
        for folder in orphaned_groups(root)
    )
    return CleanReport(
        dry_run=dry_run,
        containers=containers,
        groups=groups,
        partial_folders=tuple(sorted(_partial(folders))),
    )


def is_stale(owner: Owner, *, past: bool) -> bool:
    """Pure: may a container with such an owner and such an expiry be removed?"""
    return owner is Owner.DEAD or (owner is Owner.UNKNOWN and past)


def _sweep_one(
    engine: Engine, item: ContainerSummary, *, dry_run: bool, root: Path, now: float
) -> Leftover:
    owner = owner_state(parse_lease(item.labels.get(LEASE, "")), root)
    past = expired(item.labels, now)
    stale = is_stale(owner, past=past)
    removed, problem = False, None
    if stale and not dry_run:
        try:
            engine.remove(item.container_id)
            removed = True
        except EngineError as error:
            problem = error.message
    return Leftover(
        container_id=item.container_id,
        name=item.name,
        status=item.status,
        run_id=item.labels.get(RUN, ""),
        unit_id=item.labels.get(UNIT, ""),
        owner=owner,
        expired=past,
        stale=stale,
        removed=removed,
        problem=problem,
    )


def _partial(folders: Iterable[Path]) -> set[str]:
    return {
        str(path)
        for folder in folders
        if folder.is_dir()
        for path in folder.glob(".partial-*")
        if path.is_dir()
    }
