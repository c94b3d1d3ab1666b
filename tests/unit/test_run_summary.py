"""What a run tells at its end."""

from __future__ import annotations

from pathlib import Path

from runner.commands.running import summary_text
from runner.engine.fake import Script, Step
from tests.sealed import sandbox


def test_latencies_stand_beside_what_they_were_measured_on(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "crash", extra="jobs: 1")
    text = box.manifest.read_text().replace("limits: {", "limits: {cpus: 2, ", 1)
    box.manifest.write_text(text + "    config: {batch_size: 16}\n")
    told = summary_text(box.run(), box.verify())
    (head,) = [line for line in told.splitlines() if line.startswith("ms a query")]
    assert head.split()[3:] == ["split", "mean", "p50", "p95", "max", "threads", "batch", "size"]
    (row,) = [line for line in told.splitlines() if line.startswith("overlap") and " all " in line]
    assert row.split() == ["overlap", "all", "1", "1", "1", "1", "2", "-"]
    assert "compare within this host only" in told


def test_a_failure_says_where_its_last_words_are(tmp_path: Path) -> None:
    words = Script(steps=(Step(log=b"no such thing\n", stream=2),), exit_after_s=0.05, exit_code=1)
    box = sandbox(tmp_path, "overlap", "crash", "loud", scripts={"loud": words})
    lines = summary_text(box.run(), box.verify()).splitlines()
    (log,) = [line for line in lines if "its stderr" in line]
    assert Path(log.partition(": ")[2]).read_bytes() == b"no such thing\n"
    assert lines[lines.index(log) - 1].startswith("loud on ")
