"""Runs a hostile script as a unit on the real engine, and checks that nothing of it stays."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from runner.engine.api import Engine
from runner.engine.cgroup_files import find_mounts
from runner.engine.cgroups import open_cgroups
from runner.engine.lease import RUN
from runner.harvest import Harvest, harvest
from runner.model import Evidence, Outcome
from runner.outcome import classify
from runner.purge import purge
from runner.request import UnitRequest
from runner.rows.retrieval import RetrievalIds, RetrievalRows
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit
from tests.unit.units import request

IDS = RetrievalIds.of(["q1", "q2", "q3"], ["d1", "d2"])
#: What methods of these tests do when they do their work.
WORK = "cp /in/good.jsonl /out/rows.jsonl"


def row(query: str, ranking: str = '[["d1", 2.0]]') -> str:
    return f'{{"query_id": "{query}", "ranking": {ranking}, "latency_ms": 1, "error": null}}\n'


GOOD = row("q1") + row("q2") + row("q3", "[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is known of a unit that ran."""

    outcome: Outcome
    reason: str
    evidence: Evidence
    harvest: Harvest
    request: UnitRequest

    @property
    def stdout(self) -> bytes:
        return self.request.stdout_log.read_bytes()

    @property
    def stderr(self) -> bytes:
        return self.request.stderr_log.read_bytes()


class Arena:
    """One folder, one run id, the real engine."""

    def __init__(self, engine: Engine, image_id: str, folder: Path) -> None:
        self.engine, self.image_id, self.folder = engine, image_id, folder
        self.run_id = "sha256:" + secrets.token_hex(32)
        self.platform = Platform(engine=engine, cgroups=open_cgroups(engine.info()))
        self.cancel = CancelToken()

    def request(self, script: str, **changes: object) -> UnitRequest:
        """A unit that runs a shell script; its input is a file of good rows."""
        wanted = request(
            self.folder,
            run_id=self.run_id,
            image_id=self.image_id,
            command=("/bin/sh", "-c", script),
            **changes,
        )
        (wanted.in_dir / "good.jsonl").write_text(GOOD)
        (wanted.in_dir / "task.json").write_text(json.dumps({"task": "retrieval"}))
        return wanted

    def run(self, script: str, **changes: object) -> Verdict:
        return self.run_request(self.request(script, **changes))

    def run_request(self, wanted: UnitRequest) -> Verdict:
        """Run, harvest, judge; then nothing of the unit may be left."""
        result = run_unit(self.platform, wanted, cancel=self.cancel)
        assert self.left_over() == []
        found = harvest(
            wanted.out_dir,
            limits=wanted.limits,
            checker=RetrievalRows(IDS),
            rows_dir=self.folder / "rows",
        )
        evidence = replace(result.evidence, rows=found.rows, harvest_refused=found.refused)
        outcome, reason = classify(evidence, wanted.limits)
        assert evidence.death_proven
        assert str(self.folder) not in repr(evidence) + reason
        return Verdict(
            outcome=outcome, reason=reason, evidence=evidence, harvest=found, request=wanted
        )

    def left_over(self) -> list[str]:
        """Containers and control groups of this run that still exist."""
        short = self.run_id.rpartition(":")[2][:12]
        left = [item.name for item in self.engine.containers({RUN: self.run_id})]
        for mount in find_mounts().every:
            for top in ("sealbench", "sealbench.slice"):
                left += [str(path) for path in (mount / top).glob(f"*{short}*")]
        return left

    def clear(self) -> None:
        """Remove what was written, so that a test framework need not."""
        for item in self.engine.containers({RUN: self.run_id}):
            self.engine.remove(item.container_id)
        purge(self.folder / "out")
