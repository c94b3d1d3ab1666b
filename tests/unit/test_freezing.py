"""What ``freeze`` says about the pairs that it froze."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from runner.commands.freezing import NAMED, freeze
from tests.unit.code_files import PAIR_COLUMNS, PAIRS, SOURCES, freeze_text, write_pairs, write_toy

TWINS = {**SOURCES, "g1-twin": SOURCES["g1-L1"]}
CONFLICT = ("t5", "g1-twin", "g1-orig", "0", "g1")
REPEATED = tuple((f"t{at}", "g1-orig", "g1-L1", "1", "g1") for at in range(6, 6 + NAMED + 2))
MIRRORED = ("t20", "g1-np", "g1-orig", "0", "g1")
SELF = ("t21", "g2-np", "g2-np", "1", "g2")


def froze(root: Path, *, as_json: bool) -> Path:
    manifest = root / "toy.yaml"
    manifest.write_text(freeze_text(root), encoding="utf-8")
    out = root / ("json" if as_json else "text")
    assert not freeze(
        Namespace(manifest=manifest, data_root=root, out=out, force=False, json=as_json)
    )
    return out / "toy-v1.protocol.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


def test_pairs_that_need_a_look_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs(root / "toy" / "pair", [*PAIRS, CONFLICT, *REPEATED, MIRRORED, SELF], TWINS)
    froze(root, as_json=False)
    text = capsys.readouterr().out
    assert "duplicate pairs: t6 repeats t1; t7 repeats t1; t8 repeats t1; " in text
    assert "t10 repeats t1; and 2 more\n" in text
    assert "mirrored pairs: t20 turns round t2\n" in text
    assert "self pairs: t21\n" in text
    assert (
        "warning: 1 of the same content under another label: t5 contradicts t1 (same bytes)\n"
        in text
    )

    froze(root, as_json=True)
    told, other = json.loads(capsys.readouterr().out)["datasets"]
    assert (told["duplicate_pairs"], told["mirrored_pairs"], told["self_pairs"]) == (7, 1, 1)
    assert told["content_conflicts"] == 1
    first = told["first"]
    assert first["duplicate_pairs"][0] == {"pair": "t6", "other": "t1"}
    assert [len(found) for found in first.values()] == [NAMED, 1, 1, 1]
    assert first["content_conflicts"][0] == {"pair": "t5", "other": "t1", "same": "bytes"}
    assert "first" not in other


def test_nothing_is_said_where_nothing_is_odd(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = froze(root, as_json=False)
    assert "warning" not in capsys.readouterr().out
    entry = json.loads(protocol.read_bytes())["datasets"][0]
    assert "content_conflicts" not in json.dumps(entry)
    assert PAIR_COLUMNS[0] not in json.dumps(entry)
