"""Reports: self-contained, escaped, and honest about ties and failures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runner.cli import main
from runner.errors import EXIT_OK, BundleError, DataError, StorageError, UsageError
from runner.model import ImagePin, Limits, MethodPlan
from runner.report.benchmark import benchmark_page
from runner.report.charts import Bars, Curve, Interval, bar_chart, interval_chart, line_chart, ticks
from runner.report.curves import curves_of
from runner.report.facts import chance_notes, latency_table
from runner.report.page import Html, Section, code, escape, figure, page, paragraph, table
from runner.report.words import interval, metric_name, number, settings, verdict
from tests.sealed import DATA_ROOT, sandbox

EVIL = "</title><script>alert('x')</script>\"&"
VOID = {"meta"}


class Balanced(HTMLParser):
    """Checks that tags close in order, and keeps what could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.risky: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        names = {name for name, _ in attrs}
        if tag in {"script", "img", "iframe", "link", "object", "use", "image"} or names & {
            "src", "href", "onload", "onclick", "xlink:href",
        }:  # fmt: skip
            self.risky.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def sound(text: str) -> str:
    """Assert that a page is whole, runs nothing and loads nothing; return it."""
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert parser.risky == []
    assert not re.search(r"https?://|url\(|@import|<script", text)
    return text


def test_every_text_is_escaped() -> None:
    row = Interval(label=EVIL, value=0.5, low=0.25, high=0.75)
    drawings = [
        interval_chart(EVIL, [row], axis=EVIL, zero=0.0),
        bar_chart(EVIL, [Bars(label=EVIL, values=[0.5, None])], [EVIL, "b"], axis=EVIL),
        line_chart(EVIL, [Curve(label=EVIL, points=[(1.0, row)])], axes=(EVIL, EVIL)),
    ]
    parts = [
        paragraph(EVIL), paragraph(EVIL, faint=True), code(EVIL), table([EVIL], [[EVIL]]),
        *(figure(drawing, EVIL) for drawing in drawings),
    ]  # fmt: skip
    text = sound(page(EVIL, [paragraph(EVIL)], [Section(title=EVIL, parts=parts)], EVIL))
    assert "alert('x')" not in text
    assert text.count("&lt;script&gt;") >= 12
    assert "default-src 'none'" in text


def test_markup_is_not_escaped_twice() -> None:
    assert escape(Html("<b>x</b>")) == "<b>x</b>"
    assert escape("<b>") == "&lt;b&gt;"
    assert table(["a", "n"], [["x", Html("<i>1</i>")]], numbers={1}).count('class="n"') == 2
    assert "<h2>" not in page("t", [], [Section(title="", parts=[])])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.236, 0.343, [0.225, 0.25, 0.275, 0.3, 0.325, 0.35]),
        (-0.0297, 0.0773, [-0.05, -0.025, 0.0, 0.025, 0.05, 0.075, 0.1]),
        (1.0, 20.0, [0.0, 5.0, 10.0, 15.0, 20.0]),
        (5.0, 5.0, [4.4, 4.6, 4.8, 5.0, 5.2, 5.4, 5.6]),
        (0.0, 1e-9, [0.0, 2e-10, 4e-10, 6e-10, 8e-10, 1e-9]),
    ],
)
def test_ticks_are_round_and_cover(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected, abs=1e-12)


def test_an_axis_needs_finite_ends() -> None:
    with pytest.raises(ValueError, match="finite"):
        ticks(float("nan"), 1.0)


def test_charts_draw_what_there_is() -> None:
    assert interval_chart("t", [], axis="a") == ""
    assert bar_chart("t", [Bars(label="a", values=[None])], ["s"], axis="a") == ""
    assert line_chart("t", [], axes=("x", "y")) == ""
    rows = [Interval(label="one", value=0.2, low=0.1, high=0.3), Interval(label="two", value=0.4)]
    drawn = interval_chart("t", rows, axis="a")
    assert drawn.count("<circle") == 2
    assert drawn.count('stroke-width="2"') == 1  # the second has no interval
    assert "one: 0.2000 [0.1000, 0.3000]" in drawn
    places = [float(x) for x in re.findall(r'<circle cx="([0-9.]+)"', drawn)]
    assert places[0] < places[1]
    bars = bar_chart("t", [Bars(label="g", values=[0.5, None, 1.0])], ["a", "b", "c"], axis="x")
    assert bars.count("<rect") == 2
    widths = [float(w) for w in re.findall(r'width="([0-9.]+)" height="11"', bars)]
    assert widths[0] * 2 == pytest.approx(widths[1], abs=0.2)
    curve = Curve(label="c", points=[(1.0, rows[0]), (2.0, rows[1])])
    lines = line_chart("t", [curve, curve], axes=("x", "y"))
    assert lines.count("<polyline") == 2
    assert len(set(re.findall(r'polyline [^>]*stroke-dasharray="([^"]*)"', lines))) == 2


@pytest.mark.parametrize(
    ("metric", "name"),
    [("ndcg_at_10", "nDCG@10"), ("wkt_loss", "loss (weighted Kendall)"), ("auroc", "AUROC"),
     ("wktd_mean_at_3", "WKTD (mean)@3"), ("something_new", "something new")],
)  # fmt: skip
def test_names_of_metrics(metric: str, name: str) -> None:
    assert metric_name(metric) == name


def test_words() -> None:
    assert number(None) == "null"
    assert number(0.5, 6) == "0.500000"
    assert interval({"ci_low": None, "ci_high": None}) == "-"
    assert interval({"ci_low": 0.1, "ci_high": 0.25}) == "0.1000 to 0.2500"
    assert settings({"b": "x y", "a": 1.5, "c": "", "d": True, "e": [1]}) == (
        'a 1.5, b x y, c "", d true, e [1]'
    )


@pytest.mark.parametrize(
    ("metric", "difference", "tie", "expected"),
    [
        ("ndcg_at_10", 0.1, False, "better"),
        ("ndcg_at_10", -0.1, False, "worse"),
        ("wkt_loss", -0.1, False, "better"),
        ("wkt_loss", 0.1, False, "worse"),
        ("wkt_loss", 0.1, True, "tie"),
        ("wkt_loss", 0.1, None, "not tested"),
    ],
)
def test_verdicts(metric: str, difference: float, tie: bool | None, expected: str) -> None:
    row = {"metric": metric, "method": "a", "other": "b", "difference": difference, "tie": tie}
    assert verdict(row, "a") == expected
    other = {"better": "worse", "worse": "better"}.get(expected, expected)
    assert verdict(row, "b") == other


def method(name: str, config: Mapping[str, Any], command: str = "m") -> MethodPlan:
    pin = ImagePin(
        name="i",
        image_id="sha256:" + "1" * 64,
        manifest_digest=None,
        repository=None,
        platform="linux/amd64",
        published=False,
    )
    return MethodPlan(
        name=name,
        method_id="sha256:" + "2" * 64,
        image=pin,
        command=("python3", "-m", f"pack.{command}"),
        config=config,
        limits=Limits(),
    )


def test_a_curve_over_lengths_says_that_they_are_prefixes(tmp_path: Path) -> None:
    box = sandbox(tmp_path / "box", "overlap")
    head, one = box.manifest.read_text().split("methods:\n")
    many = "".join(
        one.replace("name: overlap", f"name: first-{n}") + f"    config: {{profile_length: {n}}}\n"
        for n in (1, 2, 3)
    )
    box.manifest.write_text(f"{head}methods:\n{many}")
    box.run()
    text = sound(benchmark_page(box.verify()))
    assert "<figcaption>nDCG@10 by profile length" in text
    assert "the first papers of one frozen profile" in text


def test_curves_are_methods_that_differ_in_one_number() -> None:
    methods = [
        method(f"{regime}{length}", {"regime": regime, "length": length, "flag": True})
        for regime in ("t", "ta")
        for length in (20, 1, 8)
    ]
    methods += [method("alone", {"length": 3}, "other"), method("none", {})]
    found = curves_of(methods)
    assert list(found) == ["length"]
    assert [(curve.label, curve.points) for curve in found["length"]] == [
        ("m t", ((1.0, "t1"), (8.0, "t8"), (20.0, "t20"))),
        ("m ta", ((1.0, "ta1"), (8.0, "ta8"), (20.0, "ta20"))),
    ]
    assert curves_of(methods[:2]) == {}


# --- of bundles ----------------------------------------------------------------------------------


def test_the_page_of_a_retrieval_bundle(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards", "crash")
    box.run()
    text = sound(benchmark_page(box.verify(), baseline="backwards"))
    for said in (
        "Quickstart, a small retrieval collection", "nDCG@10", "Differences from backwards",
        "1 of 3 units did not end as ok", "crashed", "null", "signed by",
        "scores, their intervals and ranks came out again",
    ):  # fmt: skip
        assert said in text, said
    assert str(tmp_path) not in text
    row = next(line for line in re.findall(r"<tr>.*?</tr>", text) if "<td>crash</td>" in line)
    assert "null" in row
    assert "-" in row  # no rank


def test_a_baseline_that_is_no_method_is_told_with_a_suggestion(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    with pytest.raises(UsageError, match="did you mean 'overlap'"):
        benchmark_page(box.verify(), baseline="overlp")


def test_the_command_writes_a_page_and_refuses_a_bad_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = sandbox(tmp_path, "overlap", "backwards")
    box.run(key=None)
    target = tmp_path / "report.html"
    arguments = ["report", str(box.out), "--allow-unsigned", "--out", str(target)]
    assert main(arguments) == EXIT_OK
    assert capsys.readouterr().out == f"wrote {target}\n"
    first = target.read_bytes()
    assert main([*arguments[:1], str(box.out / "bundle.tar"), *arguments[2:]]) == EXIT_OK
    assert target.read_bytes() == first  # the same from the tar, and written anew
    assert main([*arguments, "--data-root", str(tmp_path / "none")]) == DataError.exit_code
    capsys.readouterr()
    assert main([*arguments, "--data-root", str(DATA_ROOT), "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["recomputed"]["holds"] is True
    assert main([*arguments, "--out", str(tmp_path / "none/x.html")]) == StorageError.exit_code
    assert capsys.readouterr().err.startswith(f"sealbench: {tmp_path}/none/x.html: cannot write")
    of_another = ("--protocol", "sha256:" + "0" * 64, "--data-root", str(DATA_ROOT))
    assert main([*arguments, *of_another]) == BundleError.exit_code
    assert "other-protocol" in capsys.readouterr().err
    results = box.out / "bundle" / "results.json"
    results.write_bytes(results.read_bytes().replace(b"overlap", b"0verlap"))
    assert main(arguments) == BundleError.exit_code
    assert "bundle" in capsys.readouterr().err


def test_f1_stands_beside_what_saying_yes_to_all_would_have() -> None:
    one = {"dataset": "d", "split": "all", "pairs": 460, "base_rate": 0.7717, "method": "a"}
    summaries = [{**one, "all_positive_f1": 0.8712}, {**one, "all_positive_f1": 0.8712}]
    assert chance_notes(summaries, "test") == []
    (found,) = chance_notes(summaries, "all")
    assert "460 pairs of d, 0.7717 are positive: saying so of every pair has F1 0.8712" in found


def test_latencies_stand_with_what_they_were_measured_on(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    text = sound(benchmark_page(box.verify()))
    assert "Latency (retrieval, all)" in text
    assert "within this run only" in text
    for said in ("warm-up", "load at start", "What a latency includes: ", " cores; p50"):
        assert said in text, said
    documents = box.verify().documents
    assert documents is not None
    assert latency_table(documents, "heldout") == []
    assert " cores" not in latency_table(replace(documents, cores=None), "all")[0]
    imported = replace(documents.plan.methods[0], image=None)
    plan = replace(documents.plan, methods=(imported,))
    assert latency_table(replace(documents, plan=plan), "all") == []
