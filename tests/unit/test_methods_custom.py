"""The method that runs somebody else's module: every way to go wrong is one row, or one exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from similarity import custom
from similarity.custom import Refused, number, quotes, told

from runner.imagebuild.build import IMAGES_FOLDER
from runner.schemas import is_valid
from tests.unit.test_sdk import SDK_FOLDER, write_inputs

SECRET_TEXT = "public static void main(String[] arguments) { run(); }"

#: What `score` does with a left text of this name -> the row's score or error.
WAYS: dict[str, tuple[str, float | str]] = {
    "half": ("return 0.5", 0.5),
    "whole": ("return 1", 1.0),
    "negative-zero": ("return -0.0", 0.0),
    "fraction": ("from fractions import Fraction; return Fraction(1, 4)", 0.25),
    "numpy": ("import numpy; return numpy.float32(0.5)", 0.5),
    "prints": ("print('{\"pair_id\": 1}'); return 0.125", 0.125),
    "none": ("return None", "score() returned NoneType, not a number"),
    "text": ("return '0.5'", "score() returned str, not a number"),
    "true": ("return True", "score() returned bool, not a number"),
    "nan": ("return float('nan')", "score() returned nan, not a finite number"),
    "infinite": ("return float('inf')", "score() returned inf, not a finite number"),
    "over": ("return 1.07", "score() returned 1.07, and the similarity of a pair is from 0 to 1"),
    "under": ("return -1", "score() returned -1.0, and the similarity of a pair is from 0 to 1"),
    "exit": ("import sys; sys.exit()", "SystemExit"),
    "exit-3": ("raise SystemExit(3)", "SystemExit: 3"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "value": ("raise ValueError('no tokens')", "ValueError: no tokens"),
    "lines": ("raise ValueError('a\\n\\x1b[31mb')", "ValueError: a ?[31mb"),
    "no-file": ("open('/somewhere/else/x.py')",
                "FileNotFoundError: [Errno 2] No such file or directory: '<path>'"),
    "quoting": ("raise ValueError('cannot read ' + repr(right))",
                "ValueError: (its message quotes a text)"),
    "wordless": ("raise Wordless", "Wordless"),
    "deep": ("return score(left, right)", "RecursionError"),
}  # fmt: skip


def every_way() -> str:
    lines = ["class Wordless(Exception):", "    def __str__(self): raise self"]
    lines += ["def score(left, right):"]
    for name, (code, _) in WAYS.items():
        lines += [f"    if left == {name!r}:", f"        {code}"]
    return "\n".join(lines) + "\n"


def write_pairs(folder: Path, lefts: list[str], *, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True)
    task = {
        "schema": "sealbench/task/v1", "task": "pair", "dataset": "tiny", "seed": 7, "top_k": 10,
        "config": {"text": "normalised", **(config or {})}, "options": {}, "pairs": len(lefts),
        "sources": 2 * len(lefts), "threads": 1,
    }  # fmt: skip
    (folder / "task.json").write_text(json.dumps(task))
    texts = {f"l{n}": left for n, left in enumerate(lefts)} | {"r": SECRET_TEXT}
    rows = [{"_id": name, "text": text} for name, text in texts.items()]
    (folder / "sources.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{"pair_id": f"p{n}", "left_id": f"l{n}", "right_id": "r"} for n in range(len(lefts))]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


def run(
    tmp_path: Path, source: str, **files: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Answer ``in`` by a module, as the container does; return how it ended and its rows."""
    module, out = tmp_path / "module", tmp_path / "out"
    module.mkdir()
    out.mkdir()
    for name, text in {"method": source, **files}.items():
        (module / f"{name}.py").write_text(text)
    start = (
        "import os, sys, pathlib, similarity.custom as c; "
        f"c.MODULE = pathlib.Path({str(module)!r}); code = c.main(c.MODULE); "
        "sys.stdout.flush(); sys.stderr.flush(); os._exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", start],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SDK_FOLDER}:{IMAGES_FOLDER / 'code'}",
            "inputDataset": str(tmp_path / "in"),
            "outputDir": str(out),
        },
        timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip
    rows = out / "rows.jsonl"
    found = rows.read_text().splitlines() if rows.exists() else []
    return done, [json.loads(line) for line in found]


def test_every_way_to_go_wrong_is_the_error_of_one_pair(tmp_path: Path) -> None:
    write_pairs(tmp_path / "in", [*WAYS, "half"])
    done, rows = run(tmp_path, every_way())
    assert done.returncode == 0, done.stderr
    assert len(rows) == len(WAYS) + 1
    for (name, (_, expected)), row in zip(WAYS.items(), rows, strict=False):
        assert is_valid("row-pair", row)
        found = row["error"] if isinstance(expected, str) else row["score"]
        whole = found == expected or (name == "deep" and found.startswith("RecursionError"))
        assert whole, (name, row)
    assert rows[-1] == {"pair_id": f"p{len(WAYS)}", "score": 0.5, "error": None}
    assert done.stdout == '{"pair_id": 1}\n'
    assert "void main" not in done.stderr
    assert str(tmp_path) not in done.stderr
    assert "p13: SystemExit\n  method.py:" in done.stderr


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; sys.exit(0)", "could not be loaded: SystemExit: 0"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("def score(left, right:", "SyntaxError"),
        ("x = 1", "defines no function score(left, right)"),
        ("score = 0.5", "defines no function score(left, right)"),
        ("def score(l, r): return 1\ndef prepare(texts, config, seed): 1 / 0", "ZeroDivisionError"),
        ("def score(l, r): return 1\ndef prepare(*_): raise SystemExit", "prepare() failed"),
    ],
)
def test_what_goes_wrong_before_the_first_pair_ends_the_method(
    tmp_path: Path, source: str, words: str
) -> None:
    write_pairs(tmp_path / "in", ["a"])
    done, rows = run(tmp_path, source)
    assert done.returncode == 1
    assert words in done.stderr
    assert rows == []


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_that_nothing_can_catch_keeps_the_rows_before(tmp_path: Path, code: int) -> None:
    write_pairs(tmp_path / "in", ["a", "a", "end", "a"])
    source = (
        f"import os\ndef score(left, right):\n    if left == 'end': os._exit({code})\n    return 1"
    )
    done, rows = run(tmp_path, source)
    assert done.returncode == code
    assert [row["pair_id"] for row in rows] == ["p0", "p1"]


def test_neither_threads_nor_exit_handlers_decide_how_it_ends(tmp_path: Path) -> None:
    write_pairs(tmp_path / "in", ["a"])
    source = (
        "import atexit, os, threading, time\n"
        "atexit.register(lambda: os._exit(9))\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "def score(left, right): return 1.0\n"
    )
    done, rows = run(tmp_path, source)
    assert (done.returncode, len(rows)) == (0, 1)


def test_prepare_sees_texts_settings_and_seed_once(tmp_path: Path) -> None:
    write_pairs(tmp_path / "in", ["one  \r\ntwo\n", "one  \r\ntwo\n", "b"], config={"k": 3})
    source = (
        "import helper, random\nseen = []\n"
        "def prepare(texts, config, seed):\n"
        "    seen.append((list(texts), dict(config), seed, random.random()))\n"
        "def score(left, right):\n"
        "    print(repr(seen), helper.NAME)\n    return 0.0\n"
    )
    done, rows = run(tmp_path, source, helper="NAME = 'beside'")
    assert done.returncode == 0, done.stderr
    assert len(rows) == 3
    texts = ["one\ntwo", "b", SECRET_TEXT]
    first = f"[({texts!r}, {{'k': 3}}, 7, 0.32383276483316237)] beside"
    assert done.stdout.splitlines() == [first] * 3


@pytest.mark.parametrize(("text", "code"), [("raw", 0), ("Raw", 1)])
def test_texts_come_as_they_stand_where_that_is_asked(tmp_path: Path, text: str, code: int) -> None:
    write_pairs(tmp_path / "in", ["a \r\n"], config={"text": text})
    done, _ = run(tmp_path, "def score(left, right):\n    print(repr(left))\n    return 0")
    assert done.returncode == code
    assert (r"'a \r\n'" in done.stdout) == (code == 0)


def test_rankings_are_cut_and_an_error_ends_one_query_only(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in", config={"text": "normalised"})
    source = (
        "def score(left, right):\n"
        "    if left == 'text 1': raise KeyError(right)\n"
        "    return 12 * len(right)\n"
    )
    done, rows = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert all(is_valid("row-retrieval", row) for row in rows)
    assert [(row["query_id"], row["error"]) for row in rows] == [
        ("q0", None), ("q1", "KeyError: 'Ä one'"), ("q2", None),
    ]  # fmt: skip
    assert rows[0]["ranking"] == [["d1", 60.0], ["d2", 36.0]]
    assert rows[1]["ranking"] == []
    assert "q1, d1: KeyError" in done.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("bad /home/someone/a.py, line 3", "ValueError: bad <path>, line 3"),
        (r"in C:\Users\someone\a.py", "ValueError: in <path>"),
        ("1/2 of n/a", "ValueError: 1/2 of n/a"),
        ("x" * 1000, "ValueError: " + "x" * 300),
        ("\ud800", "ValueError: ?"),
        ("", "ValueError"),
    ],
)
def test_messages_carry_no_path_and_are_short(message: str, shown: str) -> None:
    assert told(ValueError(message), ()) == shown


def test_a_quoted_text_is_recognised_however_it_is_shown() -> None:
    text = "int main() {\n\treturn twice(21);\n}"
    for message in (text, repr(text), f"KeyError: {text!r}", "main(){return twice(21)"):
        assert quotes(message, ["other", text]), message
    assert not quotes("invalid literal for int(): 'main'", [text])


def test_range_is_for_pairs_alone() -> None:
    assert number(12, bounded=False) == 12.0
    with pytest.raises(Refused):
        number(12, bounded=True)


def test_reports_on_stderr_end_at_some_point(capsys: pytest.CaptureFixture[str]) -> None:
    scorer = custom.Scorer(lambda _left, _right: None, bounded=True)
    for count in range(100):
        with pytest.raises(custom.Failed):
            scorer("a", "b", f"p{count}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "further errors stand in the rows only"
    assert len(lines) == custom.REPORTS + 1
