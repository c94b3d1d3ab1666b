"""What a run tells at its end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runner.commands.running import NOT_RESUMED, finish, last_words, summary_text
from runner.engine.fake import Script, Step
from runner.errors import EXIT_UNEXPECTED_OUTCOMES, DataError
from runner.signals import CancelToken
from tests.sealed import DATA_ROOT, KEY, sandbox


def test_latencies_stand_beside_what_they_were_measured_on(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "crash", extra="jobs: 1")
    text = box.manifest.read_text().replace("limits: {", "limits: {cpus: 2, ", 1)
    box.manifest.write_text(text + "    config: {batch_size: 16}\n")
    told = summary_text(box.run(), box.verify())
    (head,) = [line for line in told.splitlines() if line.startswith("ms a query")]
    assert head.split() == [
        *("ms", "a", "query", "dataset", "split", "mean", "p50", "p95", "max", "threads"),
        *("batch", "size", "warm-up", "load", "at", "start"),
    ]
    (row,) = [line for line in told.splitlines() if line.startswith("overlap") and " all " in line]
    (load,) = row.split()[-1:]
    assert row.split() == [
        *("overlap", "quickstart-mini", "all", "1", "1", "1", "1", "2", "-", "not", "stated", load),
    ]
    assert "what it includes: " in told
    assert "compare within this host only" in told


def test_a_failure_says_where_its_last_words_are(tmp_path: Path) -> None:
    words = Script(steps=(Step(log=b"no such thing\n", stream=2),), exit_after_s=0.05, exit_code=1)
    box = sandbox(tmp_path, "overlap", "crash", "loud", scripts={"loud": words})
    lines = summary_text(box.run(), box.verify()).splitlines()
    (log,) = [line for line in lines if "its stderr: " in line]
    assert Path(log.partition(": ")[2]).read_bytes() == b"no such thing\n"
    told = lines[lines.index(log) - 1]
    assert told.startswith("loud on quickstart-mini: crashed: exit code 1 ")
    assert told.endswith("; its stderr ends: no such thing")
    (silent,) = [line for line in lines if line.startswith("crash on ")]
    assert "stderr" not in silent


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"", ""),
        (b" \n\n", ""),
        (b"Traceback:\nValueError: no\n\n \n", "ValueError: no"),
        (b"one\rtwo", "two"),
        (b"\x1b[2Jgone \xff\xe2\x80\xae", "\\x1b[2Jgone \ufffd\\u202e"),
        (b"x" * 100_000, "x" * 200),
        (b"\x1b" * 300, "\\x1b" * 50),
    ],
)
def test_the_last_words_are_one_short_printable_line(
    tmp_path: Path, log: bytes, shown: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(log)
    assert last_words(path) == shown


def test_a_cancelled_run_says_that_it_is_not_resumed(tmp_path: Path) -> None:
    box, cancel = sandbox(tmp_path, "overlap"), CancelToken()
    cancel.cancel()
    lines = summary_text(box.run(cancel=cancel), box.verify()).splitlines()
    assert lines[-1] == NOT_RESUMED
    whole = sandbox(tmp_path / "whole", "overlap", "late")
    assert NOT_RESUMED not in summary_text(whole.run(), whole.verify())


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", ["corpus.jsonl", "qrels/test.tsv"])
def test_data_that_changed_meanwhile_hide_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool, name: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(DATA_ROOT, data)
    box = sandbox(tmp_path / "box", "overlap", "crash")
    result = box.run(data_root=data)
    changed = data / "quickstart-mini" / name
    before = changed.read_bytes()
    changed.write_bytes(before + b"\n")
    with pytest.raises(DataError) as caught:
        finish(result, KEY, as_json=as_json)
    error, told = caught.value, capsys.readouterr().out
    assert (error.code, error.exit_code) == ("data.changed-meanwhile", 4)
    assert error.where is not None
    assert error.where.file == str(changed)
    assert "while the run went on" in error.message
    if as_json:
        last = json.loads(told)
        assert last["verify"]["intact"]["holds"] is True
        assert last["verify"]["recomputed"]["holds"] is None
        assert last["results"] == result.results
    else:
        assert "overlap" in told.splitlines()[1]
        assert "recomputed: open" in told
        assert f"bundle: {result.bundle.path}" in told
    changed.write_bytes(before)
    assert finish(result, KEY, as_json=as_json) == EXIT_UNEXPECTED_OUTCOMES
