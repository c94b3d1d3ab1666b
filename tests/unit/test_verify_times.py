"""Times that no run can have measured are refused, whoever signed them; others stand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes
from runner.latency import TOLERANCE_MS, excess, with_excess
from runner.model import Evidence, Limits, Outcome, UnitOutcome
from runner.records import NANO
from runner.timespan import run_span
from runner.verify.bundle import VerifyReport
from tests.sealed import Sandbox, does, sandbox, sealed_again, write_rows
from tests.unit.units import LIMITS, UNIT

Change = Callable[[list[Any]], None]
SECOND = NANO


def slow(mounts: Mapping[str, Path]) -> None:
    """A method whose latencies of a minute nobody waited for."""
    rows = []
    for line in (mounts["/in"] / "queries.jsonl").read_text().splitlines():
        name = json.loads(line)["_id"]
        rows.append({"query_id": name, "ranking": [], "latency_ms": 60_000, "error": None})
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    folder = tmp_path_factory.mktemp("sealed")
    box = sandbox(folder, "overlap", "backwards", "slow", scripts={"slow": does(slow)})
    box.run()
    assert box.verify().faults == ()
    return box


def forged(sealed: Sandbox, folder: Path, change: Change) -> VerifyReport:
    shutil.copytree(sealed.folder, folder / "copy")
    copy = replace(sealed, folder=folder / "copy")
    path = copy.out / "bundle" / "outcomes.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(records)
    path.write_bytes(b"".join(canonical_bytes(record) + b"\n" for record in records))
    sealed_again(copy.out / "bundle")
    return copy.verify(labels=False)


def wall(nanoseconds: int, *places: int) -> Change:
    """Another wall time, consistently."""

    def change(records: list[Any]) -> None:
        for place in places or range(len(records)):
            records[place]["evidence"]["wall_ns"] = nanoseconds
            records[place]["wall_seconds"] = nanoseconds / NANO

    return change


def processor(nanoseconds: int) -> Change:
    def change(records: list[Any]) -> None:
        records[0]["evidence"]["cpu_ns"] = nanoseconds
        records[0]["cpu_seconds"] = nanoseconds / NANO

    return change


def started(text: str | None) -> Change:
    return lambda records: records[0].update(started=text)


def no_wall(records: list[Any]) -> None:
    records[0]["evidence"]["wall_ns"] = records[0]["wall_seconds"] = None


def no_warning(records: list[Any]) -> None:
    assert "latencies" in records[2]["evidence"]["warnings"].pop()


FORGED: dict[str, tuple[Change, str]] = {
    "started in 2001": (started("2001-01-01T00:00:00.000Z"), "before the run did"),
    "started next century": (started("2101-01-01T00:00:00.000Z"), "ended after the run did"),
    "never started": (started(None), "did not start"),
    "no time": (started("2026-02-30T00:00:00.000Z"), "no time in UTC"),
    "a longer unit than the run": (wall(19 * SECOND, 0), "ended after the run did"),
    "more work than fits": (wall(SECOND), "its units ran for 3.0 s in all"),
    "beyond its budget": (wall(21 * SECOND, 0), "longer than its budget"),
    "no wall time": (no_wall, "nothing says how long"),
    "no processor time": (processor(0), "used no processor time"),
    "more processor time than there is": (processor(5 * SECOND), "more processor time than 1 CPUs"),
    "latencies that were not waited for": (no_warning, "slow on quickstart-mini: the latencies"),
}


@pytest.mark.parametrize("name", FORGED)
def test_impossible_times_are_refused_whoever_signs_them(
    sealed: Sandbox, tmp_path: Path, name: str
) -> None:
    change, words = FORGED[name]
    faults = forged(sealed, tmp_path, change).faults
    assert any(words in fault.message for fault in faults), faults
    assert {(f.file, f.code) for f in faults} <= {("outcomes.jsonl", "bundle.impossible-time")}


def test_a_lie_within_the_bounds_stands(sealed: Sandbox, tmp_path: Path) -> None:
    """What docs/verification.md says: such a rewriting is not found out."""
    assert forged(sealed, tmp_path, wall(SECOND // 25, 0)).faults == ()


def test_a_method_that_is_wrong_about_its_speed_keeps_its_answers(sealed: Sandbox) -> None:
    lines = (sealed.out / "bundle" / "outcomes.jsonl").read_bytes().splitlines()
    record = json.loads(lines[2])
    assert record["outcome"] == "ok"
    [warning] = record["evidence"]["warnings"]
    assert warning.startswith("the latencies of its rows add up to")
    assert json.loads(lines[0])["evidence"]["warnings"] == []


@pytest.mark.parametrize(
    ("total_ms", "wall_ms", "cpus", "possible"),
    [
        (0.0, 0, 1000, True),
        (1000.0, 1000, 1000, True),
        (1000.0 + TOLERANCE_MS, 1000, 1000, True),
        (1001.0 + TOLERANCE_MS, 1000, 1000, False),
        (1900.0, 1000, 2000, True),  # a thread for each CPU
        (1900.0, 1000, 1500, True),
        (2100.0 + TOLERANCE_MS, 1000, 1500, False),
        (900.0, 1000, 100, True),  # a tenth of a CPU is a slow thread, and still one
        (1e12, None, 1000, True),  # nothing to hold it against
    ],
)
def test_latencies_fit_into_the_wall_time_of_each_thread(
    total_ms: float, wall_ms: int | None, cpus: int, *, possible: bool
) -> None:
    evidence = Evidence(wall_ns=None if wall_ms is None else wall_ms * 1_000_000)
    limits = Limits(cpus_milli=cpus)
    assert (excess(total_ms, evidence, limits) is None) is possible
    assert (with_excess(total_ms, evidence, limits) == evidence) is possible


BEGAN, SINCE = "2026-01-01T10:00:00.000Z", "2026-01-01T12:00:00.000Z"


@pytest.mark.parametrize(
    ("now", "elapsed", "unit", "span"),
    [
        # an ordinary run, and one that an earlier process began
        ("2026-01-01T12:00:09.000Z", 9 * SECOND, None, (BEGAN, "2026-01-01T12:00:09.000Z")),
        # set back by an hour in between: the time that passed counts
        ("2026-01-01T11:00:09.000Z", 9 * SECOND, None, (BEGAN, "2026-01-01T12:00:09.000Z")),
        # set back before the first unit: that one began the run
        (
            "2026-01-01T09:00:09.000Z",
            0,
            ("2026-01-01T09:00:00.000Z", SECOND),
            ("2026-01-01T09:00:00.000Z", SINCE),
        ),
        # set back after a unit: the run ends no earlier than that did, to the next millisecond
        (
            "2026-01-01T11:00:00.000Z",
            0,
            ("2026-01-01T13:00:00.000Z", SECOND + 1),
            (BEGAN, "2026-01-01T13:00:01.001Z"),
        ),
    ],
)
def test_a_clock_that_is_set_back_makes_no_contradiction(
    now: str, elapsed: int, unit: tuple[str, int] | None, span: tuple[str, str]
) -> None:
    records: list[UnitOutcome] = []
    if unit is not None:
        record = UnitOutcome(
            unit=UNIT,
            outcome=Outcome.OK,
            reason="",
            evidence=Evidence(started=True, wall_ns=unit[1]),
            started=unit[0],
            image=None,
            limits=LIMITS,
        )
        records.append(record)
    assert run_span(BEGAN, (SINCE, elapsed), now, records) == span


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no time in UTC"):
        run_span("yesterday", (SINCE, 0), SINCE, [])
