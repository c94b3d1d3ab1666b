"""What a reader is told beside the figures: imported or not, settled before or not, how far claims
go, what a latency includes, and which methods were set against which."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import comparisons
from runner.canonical import Json
from runner.commands.configuring import of_bundle
from runner.commands.running import summary_text
from runner.config_freeze import sign_freeze
from runner.datasets.beir import load_beir
from runner.manifest import load_freeze_manifest
from runner.model import Evidence, Limits, MethodPlan, Outcome, Unit, UnitOutcome
from runner.plan import Overrides
from runner.protocol.freeze import freeze
from runner.report.benchmark import benchmark_page
from runner.report.boundary import TITLE, freeze_state
from runner.report.differences import differences
from runner.report.latency import coverage, measured
from runner.report.view import View
from runner.verify.bundle import VerifyReport
from tests.sealed import DATA_ROOT, KEY, ROOT, Sandbox, sandbox
from tests.unit.units import PIN

# --- imported methods ---------------------------------------------------------------------------


def with_import(folder: Path) -> Sandbox:
    """Two executed methods and an imported one, which knows the labels and comes first."""
    name = "quickstart-mini"
    data = load_beir(DATA_ROOT / name, name=name, qrels_split="test", root=DATA_ROOT)
    made = sandbox(folder, "overlap", "backwards")
    results = {query: {doc: float(g) for doc, g in found.items() if g > 0}
               for query, found in data.qrels.items()}  # fmt: skip
    (folder / "theirs.json").write_text(json.dumps(results))
    lines = "  - name: theirs\n    precomputed: theirs.json\n"
    made.manifest.write_text(made.manifest.read_text() + lines, encoding="utf-8")
    return made


def test_what_was_not_executed_here_says_so_in_every_table_and_chart(tmp_path: Path) -> None:
    made = with_import(tmp_path)
    result = made.run()
    report = made.verify()
    text = benchmark_page(report, "overlap")
    shown = re.findall(r"theirs[^<]*", text.partition("<h2>" + TITLE)[0])
    assert len(shown) > 8
    assert all(found.startswith("theirs (imported)") for found in shown), shown
    for section in ("Differences from overlap", "Further measures", "nDCG@10 (retrieval"):
        _, _, rest = text.partition(section)
        chart = rest.partition("</svg>")[0]
        assert ">theirs (imported)<" in chart, section
        assert ">theirs (imported)<" in rest.partition("</table>")[0].partition("</svg>")[2]
    assert "Differences from theirs (imported)" in benchmark_page(report)
    told = summary_text(result, report)
    (row,) = [line for line in told.splitlines() if line.startswith("1 ")]
    assert row.split()[1:3] == ["theirs", "(imported)"]
    _, _, latency = text.partition("Latency (retrieval")
    assert "theirs" not in latency.partition("</table>")[0]  # nobody measured it here


# --- the claim boundary and the freeze ------------------------------------------------------------


def test_the_boundary_stands_on_the_page_and_the_summary_points_to_it(tmp_path: Path) -> None:
    made = sandbox(tmp_path, "overlap")
    result = made.run()
    report = made.verify()
    assert report.documents is not None and report.documents.claims is not None
    text = benchmark_page(report)
    section = text.partition(f"<h2>{TITLE}</h2>")[2].partition("</section>")[0]
    shows, not_shown = section.split("It does not show:")
    boundary = report.documents.claims["boundary"]
    assert shows.count("<li>") == len(boundary["shows"])
    assert not_shown.count("<li>") == len(boundary["does_not_show"])
    assert "how figures vary from run to run: every method ran once" in not_shown
    assert "configuration freeze" not in text  # nothing is held out
    lines = summary_text(result, report).splitlines()
    (line,) = [found for found in lines if found.startswith("what this shows, and what it does")]
    assert "claims.json" in line


def halved(folder: Path) -> Sandbox:
    """One method; 10 of the quickstart's 25 queries are for calibration."""
    text = (ROOT / "manifests" / "benchmarks" / "quickstart-v1.yaml").read_text(encoding="utf-8")
    text += "splits: {algorithm: sha256-id-order, calibration: 10}\n"
    file = folder / "halved.yaml"
    file.write_text(text.replace("quickstart-v1", "halved-v1"), encoding="utf-8")
    found = sandbox(folder / "box", "overlap")
    found.use_protocol(freeze(load_freeze_manifest(file), DATA_ROOT)[0])
    return found


def test_held_out_figures_say_whether_the_configuration_was_settled_before(tmp_path: Path) -> None:
    made = halved(tmp_path)
    made.run(out=made.folder / "c", overrides=Overrides(splits=("calibration",)))
    frozen, _ = of_bundle(made.folder / "c" / "bundle", KEY.public, "2026-01-31T12:00:00.000Z")
    record = made.folder / "freeze.json"
    record.write_bytes(sign_freeze(frozen, KEY))
    settled = made.run(overrides=Overrides(splits=("heldout",)), config_freeze=record)
    report = made.verify()
    said = f"signed 2026-01-31T12:00:00.000Z by key {KEY.public.keyid[:16]})"
    assert f"Configuration settled before ({said}." in benchmark_page(report)
    assert f"configuration settled before ({said}" in summary_text(settled, report)
    assert "confirmatory" not in benchmark_page(report)

    made.out.rename(made.folder / "kept")
    loose = made.run(overrides=Overrides(splits=("calibration", "heldout")))
    report = made.verify()
    page, told = benchmark_page(report), summary_text(loose, report)
    warning = "no configuration freeze: held-out figures are not confirmatory"
    held_out = page.count("(retrieval, heldout)</h2>")
    assert page.count(f"N{warning[1:]}.") == held_out > 1  # and beside no calibration table
    assert told.count(warning) == 1


SIGNED = {"frozen_on": "D"}


@pytest.mark.parametrize(
    ("frozen", "keyid", "text"),
    [
        (None, "ab" * 32, "no configuration freeze: held-out figures are not confirmatory"),
        (SIGNED, "ab" * 32, f"configuration settled before (signed D by key {'ab' * 8})"),
        (SIGNED, None, "configuration settled before (signed D by a key that was not checked)"),
    ],
)
def test_the_state_of_a_freeze(
    frozen: Mapping[str, Any] | None, keyid: str | None, text: str
) -> None:
    assert freeze_state(frozen, keyid) == text


# --- latency --------------------------------------------------------------------------------------


def method(name: str, config: Mapping[str, Json], declares: Mapping[str, Json]) -> MethodPlan:
    return MethodPlan(
        name=name, method_id="sha256:" + "0" * 64, image=PIN, command=("x",), config=config,
        limits=Limits(cpus_milli=1500), declares=declares,
    )  # fmt: skip


LEXICAL: dict[str, Json] = {"mode": "lexical", "backend": "b", "exact": True, "warm_up": 1}
DENSE: dict[str, Json] = {"mode": "vector_only", "backend": "b", "exact": True, "warm_up": 3}


def test_a_latency_stands_with_its_warm_up_and_the_load_as_its_own_unit_began() -> None:
    methods = [method("words", {}, LEXICAL), method("vectors", {"batch_size": 8}, DENSE)]
    methods.append(method("silent", {}, {}))
    figures = {"mean": 1.23456, "p50": 1, "p95": 2, "max": 3, "n": 9}
    summaries, records = [], []
    for one in [*methods, replace(methods[0], name="imported")]:
        for dataset, load in (("c", 0.25), ("d", None)):
            summaries.append(
                {"method": one.name, "dataset": dataset, "repeat": 0, "latency_ms": figures}
            )
            unit = Unit(
                unit_id=one.name + dataset, method=one.name, method_id=one.method_id,
                dataset=dataset, repeat=0, seed=0,
            )  # fmt: skip
            records.append(
                UnitOutcome(
                    unit=unit, outcome=Outcome.OK, reason="", evidence=Evidence(load_start=load),
                    started=None, image=PIN, limits=one.limits,
                )
            )  # fmt: skip
    found = [
        (one.name, *cells)
        for summary, one, cells in measured(summaries, methods, records)
        if summary["dataset"] == "c"
    ]
    assert found == [
        ("words", "1.23", "1", "2", "3", "2", "-", "1 query", "0.25"),
        ("vectors", "1.23", "1", "2", "3", "2", "8", "3 queries", "0.25"),
        ("silent", "1.23", "1", "2", "3", "2", "-", "not stated", "0.25"),
    ]
    assert [cells[-1] for summary, _, cells in measured(summaries, methods, records)
            if summary["dataset"] == "d"] == ["-", "-", "-"]  # fmt: skip


def test_what_a_latency_includes_follows_from_the_effective_settings() -> None:
    first, *none = coverage([method("words", {}, LEXICAL)])
    assert "indexing come before" in first
    assert none == []
    made = [
        method("words", {}, LEXICAL),
        method("beforehand", {"query_encoding": "before"}, {**DENSE, "latency": "the default's"}),
        method("whole", {"query_encoding": "timed"}, DENSE),
        method("stated", {}, {**DENSE, "latency": "the search alone"}),
        method("silent", {"query_encoding": 7}, {}),
    ]
    _, *more = coverage(made)
    assert more[:2] == [
        "declared by beforehand: the default's",
        "declared by stated: the search alone",
    ]
    more = more[1:]
    assert more[1].startswith("the encoding of the query is not in the latency of beforehand (")
    assert "do not compare with lexical methods" in more[1]
    assert more[2].startswith("the encoding of the query is in the latency of whole (")
    assert more[3] == "what it covers of a query's work is not stated by silent"
    assert len(more) == 4


# --- a baseline -----------------------------------------------------------------------------------


def baseline_box(folder: Path, extra: str, *names: str) -> VerifyReport:
    scripts = {name: sandbox_script(name) for name in names}
    made = sandbox(folder, *names, extra=extra, scripts=scripts)
    made.run()
    report = made.verify()
    assert report.faults == ()
    return report


def sandbox_script(name: str) -> Any:
    from tests.sealed import SCRIPTS

    return SCRIPTS["overlap" if name == "best" else "backwards"]


def test_a_chosen_baseline_is_compared_with_every_method_however_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "MAX_ALL_PAIRS", 2)
    names = ("best", "one", "two", "three")
    report = baseline_box(tmp_path / "with", "baseline: two", *names)
    assert report.documents is not None
    compared = {
        frozenset((row["method"], row["other"])) for row in report.documents.results["comparisons"]
    }
    assert compared == {
        frozenset(pair)
        for pair in (("best", "one"), ("best", "two"), ("best", "three"), ("two", "one"),
                     ("two", "three"))
    }  # fmt: skip
    text = benchmark_page(report)
    assert "Differences from two (retrieval, all)" in text
    assert "not compared with" not in text
    one = View(documents=report.documents, task="retrieval", split="all", metric="ndcg_at_10")
    (note,) = differences(one, "one")[2:]
    assert "1 method was not compared with one" in note
    assert "<code>baseline: one</code> into the run manifest" in note
    assert "<code>sealbench run MANIFEST</code>" in note
    assert "and with its baseline, two" in note


def test_a_baseline_without_a_score_says_so(tmp_path: Path) -> None:
    made = sandbox(tmp_path, "overlap", "crash", extra="baseline: crash")
    made.run()
    assert "crash has no score here: nothing can be set against it." in benchmark_page(
        made.verify()
    )
