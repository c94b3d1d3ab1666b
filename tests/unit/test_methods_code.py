"""The methods on source texts: definitions, edges, both tasks, one process and two."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rapidfuzz.distance import Levenshtein
from similarity import __main__ as driver
from similarity.edit import SCORERS, Edit
from similarity.hashing import StaticHash
from similarity.own import METHODS, Own
from similarity.text import normalised, tokens
from similarity.tiling import covered
from similarity.winnowing import Winnowing, k_gram_hashes, winnow

CONFIGS: dict[str, dict[str, Any]] = {
    "winnowing": {"k": 5, "window": 4},
    "gst": {"minimum": 5},
    "static-hash": {"dimensions": 64},
    "jaro-winkler": {"prefix_weight": 0.1},
}
ALL_METHODS = [*SCORERS, *METHODS]
TEXTS = {
    "a": "int main() { return f(1, 2) + 3; }",
    "b": "int main()\r\n{ return f(1, 2) + 3; }  \r\n",
    "c": "class C { void run() { System.out.println(x); } }",
    "d": "",
    "e": "\u00e9\u4e2d",
}


def one(name: str, left: str, right: str) -> float:
    scorer = driver.scorer_of(name, 1, CONFIGS.get(name, {}), [left, right])
    return scorer.similarities([left], [right])[0]


def test_normalised_text_has_lf_and_no_trailing_space() -> None:
    assert normalised("\n a \t\r\nb\rc  \n\n") == "a\nb\nc"
    assert normalised("\r\n \r\n") == ""


def test_tokens_are_identifiers_numbers_and_signs() -> None:
    assert tokens("a1_b+=12.5;\u00e9{") == ["a1_b", "+", "=", "12", ".", "5", ";", "{"]


@pytest.mark.parametrize("name", ALL_METHODS)
def test_equal_texts_are_similar_and_every_score_is_from_0_to_1(name: str) -> None:
    for left in TEXTS.values():
        assert one(name, left, left) == pytest.approx(1.0) or (name, left) == ("token-set", "")
        for right in TEXTS.values():
            assert 0.0 <= one(name, left, right) <= 1.0


def test_levenshtein_and_lcs_by_their_formulas() -> None:
    left, right = "abcdef", "azced"
    assert one("levenshtein", left, right) == 1 - Levenshtein.distance(left, right) / 6
    assert one("lcs", left, right) == pytest.approx(3 / 6)


def plain_tiling(left: Sequence[str], right: Sequence[str], minimum: int) -> int:
    """Greedy string tiling as it is defined: search everything again after every tile."""
    used_left, used_right = [False] * len(left), [False] * len(right)
    count = 0
    while True:
        best = (0, 0, 0)
        for at in range(len(left)):
            for to in range(len(right)):
                length = 0
                while (
                    at + length < len(left)
                    and to + length < len(right)
                    and left[at + length] == right[to + length]
                    and not used_left[at + length]
                    and not used_right[to + length]
                ):
                    length += 1
                best = max(best, (length, -at, -to))
        length, at, to = best[0], -best[1], -best[2]
        if length < minimum:
            return count
        count += length
        used_left[at : at + length] = [True] * length
        used_right[to : to + length] = [True] * length


def test_tiling_covers_what_the_plain_search_covers() -> None:
    source = random.Random(3)
    for _ in range(150):
        left, right = (source.choices("abc", k=source.randrange(25)) for _ in range(2))
        minimum = source.choice([2, 3, 5])
        assert covered(left, right, minimum) == plain_tiling(left, right, minimum)


def plain_winnow(hashes: list[int], window: int) -> set[int]:
    """The right-most smallest of every window, by position."""
    kept = set()
    for at in range(max(1, len(hashes) - window + 1)):
        part = hashes[at : at + window]
        place = max(i for i, value in enumerate(part) if value == min(part))
        kept.add(at + place)
    return {hashes[place] for place in kept}


def test_winnowing_keeps_the_smallest_hash_of_every_window() -> None:
    source = random.Random(1)
    for _ in range(50):
        hashes = [source.randrange(9) for _ in range(source.randrange(1, 30))]
        assert winnow(hashes, 4) == plain_winnow(hashes, 4)
    assert winnow([], 4) == set()


def test_winnowing_hashes_tokens_in_a_row_and_short_texts_have_none() -> None:
    assert len(k_gram_hashes(list("abcdefg"), 5)) == 3
    method = Winnowing({"k": 5, "window": 4})
    short, other = method.prepare("a b c"), method.prepare("a b d")
    assert method.compare(short, short) == 1.0
    assert method.compare(short, other) == 0.0


def test_static_hash_is_a_cosine_and_no_seed_of_the_interpreter_moves_it() -> None:
    method = StaticHash({"dimensions": 4096})
    vector = method.prepare("a b a")
    assert sum(value * value for value in vector.values()) == pytest.approx(1.0)
    assert sorted(vector) == sorted(method.prepare("a b a"))
    assert 3 in {len(method.prepare("a b")), len(method.prepare("x y"))}


@pytest.mark.parametrize("name", list(METHODS))
def test_two_processes_give_what_one_gives(name: str) -> None:
    source = random.Random(5)
    texts = [" ".join(source.choices("abcdefgh+;", k=40)) for _ in range(30)]
    left, right = texts * 20, (texts[1:] + texts[:1]) * 20
    found = []
    for threads in (1, 2):
        scorer = Own(name, threads, CONFIGS[name])
        scorer.learn(texts)
        found.append(scorer.similarities(left, right))
        scorer.close()
    assert found[0] == found[1]


def test_two_threads_of_rapidfuzz_give_what_one_gives() -> None:
    texts = list(TEXTS.values())
    scores = [Edit("indel", n, {}).similarities(texts, texts[::-1]) for n in (1, 2)]
    assert scores[0] == scores[1]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("inputDataset", str(tmp_path / "in"))
    monkeypatch.setenv("outputDir", str(tmp_path / "out"))
    return tmp_path


def write(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / name).write_text(text, encoding="utf-8")


def rows(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ALL_METHODS)
def test_the_pair_task_gets_a_score_a_pair(folders: Path, name: str) -> None:
    write(folders, "task.json", [{"task": "pair", "threads": 1, "config": CONFIGS.get(name, {})}])
    write(folders, "sources.jsonl", [{"_id": key, "text": text} for key, text in TEXTS.items()])
    pairs = [{"pair_id": f"p{at}", "left_id": "a", "right_id": key} for at, key in enumerate(TEXTS)]
    write(folders, "pairs.jsonl", list(pairs))  # type: ignore[arg-type]  # dicts of strings
    driver.main(name)
    found = rows(folders)
    assert [row["pair_id"] for row in found] == [pair["pair_id"] for pair in pairs]
    assert [set(row) for row in found] == [{"pair_id", "score", "error"}] * len(pairs)
    assert found[0]["score"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ALL_METHODS)
def test_the_retrieval_task_gets_whole_rankings_with_ties_by_id(folders: Path, name: str) -> None:
    write(
        folders, "task.json", [{"task": "retrieval", "threads": 1, "config": CONFIGS.get(name, {})}]
    )
    twins = {**TEXTS, "b2": TEXTS["a"], "a2": TEXTS["a"]}
    write(folders, "corpus.jsonl", [{"_id": key, "text": text} for key, text in twins.items()])
    write(folders, "queries.jsonl", [{"_id": "q", "text": TEXTS["a"]}])
    driver.main(name)
    (row,) = rows(folders)
    ranking: list[list[object]] = row["ranking"]  # type: ignore[assignment]  # as written
    assert {entry[0] for entry in ranking} == set(twins)
    assert [(-float(str(score)), key) for key, score in ranking] == sorted(
        (-float(str(score)), str(key)) for key, score in ranking
    )
    assert ranking[0][0] == "a"
