"""``python3 -m similarity.custom``: answer either task by a module that somebody else wrote.

The module is mounted read-only at ``/module``; ``method.py`` is loaded from there. It defines
``score(left, right)`` and may define ``prepare(texts, config, seed)``, which is called once before.
All of it runs in this one process. What goes wrong in ``score`` is the error of that pair (in
retrieval: of that query) and never a score; what goes wrong before the first pair ends the method
with exit code 1. Each row is in the file before the next call.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from sealbench_sdk import load_corpus, load_queries, load_task, ranking

from similarity.data import load_pairs, load_texts, pair_lines, ranking_line, write_rows
from similarity.text import normalised

MODULE = Path("/module")
ENTRY = "method.py"
#: What ``text`` in the config may be: how a source is read before ``score`` sees it.
READINGS: dict[str, Callable[[str], str]] = {"normalised": normalised, "raw": str}
MAX_MESSAGE = 300
#: A message that repeats this many characters of a text, white space aside, is not passed on.
QUOTED = 16
FRAMES, REPORTS = 10, 20
_PATH = re.compile(r"(?<![\w./\\])(?:[A-Za-z]:)?[/\\][^\s'\"(),:;]+")


class Refused(Exception):
    """``score`` returned what is no score; the message says what."""


class Failed(Exception):
    """A pair has no score; the message is fit for its row."""


class Scorer:
    """The author's ``score``, with every way in which it can go wrong made a ``Failed``."""

    def __init__(self, function: Callable[[str, str], Any], *, bounded: bool) -> None:
        self._function, self._bounded = function, bounded
        self._reports = 0

    def __call__(self, left: str, right: str, label: str) -> float:
        """Return a pair's score; ``label`` names the pair on stderr."""
        try:
            return number(self._function(left, right), bounded=self._bounded)
        except Refused as refused:
            self._report(f"{label}: {refused}")
            raise Failed(str(refused)) from None
        except BaseException as error:  # sys.exit() ends nothing but this pair
            message = told(error, (left, right))
            self._report(f"{label}: {message}", error)
            raise Failed(message) from None

    def _report(self, message: str, error: BaseException | None = None) -> None:
        self._reports += 1
        if self._reports <= REPORTS:
            complain(message, error)
        if self._reports == REPORTS:
            complain("further errors stand in the rows only")


def number(value: object, *, bounded: bool) -> float:
    """Return a score as a float; ``Refused`` for anything else, and what is out of range."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused(f"score() returned {type(value).__name__[:60]}, not a number")
    score = float(value)
    if not math.isfinite(score):
        raise Refused(f"score() returned {score}, not a finite number")
    if bounded and not 0.0 <= score <= 1.0:
        raise Refused(f"score() returned {score!r}, and the similarity of a pair is from 0 to 1")
    return score + 0.0  # no negative zero


def told(error: BaseException, texts: Sequence[str]) -> str:
    """Return type and message of an error, without absolute paths or pieces of the texts."""
    try:
        message = str(error)
    except BaseException:  # an exception's own __str__ may do anything
        message = ""
    message = _PATH.sub("<path>", message)[:MAX_MESSAGE]
    if quotes(message, texts):
        message = "(its message quotes a text)"
    found = f"{type(error).__name__[:60]}: {' '.join(message.split())}"
    return "".join(one if one.isprintable() else "?" for one in found).removesuffix(": ")


def quotes(message: str, texts: Sequence[str]) -> bool:
    """Tell whether a message repeats a piece of a text, as it is or as ``repr`` shows it."""
    plain = _squeezed(re.sub(r"\\[nrt]", " ", message).replace("\\", ""))
    pieces = {plain[at : at + QUOTED] for at in range(len(plain) - QUOTED + 1)}
    held = [_squeezed(text.replace("\\", "")) for text in texts] if pieces else []
    return any(piece in text for text in held for piece in pieces)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def complain(message: str, error: BaseException | None = None) -> None:
    """Write to stderr, with the last places in the module that an error went through."""
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    ours = (__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    own = [frame for frame in frames if frame.filename not in ours][-FRAMES:]
    places = [f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in own]
    print("\n".join([message, *places]), file=sys.stderr, flush=True)


def load(folder: Path) -> Any:
    """Return ``method.py`` as a module; files beside it can be imported by it."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("method", folder / ENTRY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["method"] = module
    spec.loader.exec_module(module)
    return module


def sources(reading: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the pair task by id; nothing is asked apart from them."""
    return {name: reading(text) for name, text in load_texts("sources.jsonl").items()}, {}


def documents(reading: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of documents and of queries by id."""
    corpus = {
        one.id: reading(f"{one.title} {one.text}" if one.title else one.text)
        for one in load_corpus()
    }
    return corpus, {one.id: reading(one.text) for one in load_queries()}


def answer_pairs(scorer: Scorer, texts: dict[str, str]) -> Iterator[bytes]:
    """Yield the rows of the pair task."""
    for pair in load_pairs():
        try:
            score = scorer(texts[pair.left], texts[pair.right], pair.id)
            yield pair_lines([pair.id], [score])
        except Failed as failed:
            yield _line({"pair_id": pair.id, "score": None, "error": str(failed)})


def answer_queries(
    scorer: Scorer, corpus: dict[str, str], queries: dict[str, str], top_k: int
) -> Iterator[bytes]:
    """Yield the rows of the retrieval task; the first error ends a query."""
    ids = list(corpus)
    for query, text in queries.items():
        started = time.perf_counter_ns()
        try:
            scores = [scorer(text, corpus[ident], f"{query}, {ident}") for ident in ids]
            ranked = ranking(scores, ids, top_k)
            yield ranking_line(query, ranked, (time.perf_counter_ns() - started) / 1e6)
        except Failed as failed:
            unanswered: dict[str, Any] = {"query_id": query, "ranking": [], "latency_ms": None}
            yield _line({**unanswered, "error": str(failed)})


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n"


def main(folder: Path = MODULE) -> int:
    """Answer what ``/in`` asks; return the exit code."""
    task = load_task()
    config = dict(task.config)
    reading = READINGS.get(str(config.pop("text", "normalised")))
    if reading is None:
        complain(f"the setting `text` is one of: {', '.join(READINGS)}")
        return 1
    random.seed(task.seed)
    try:
        module = load(folder)
    except BaseException as error:  # sys.exit(0) too: nothing was answered
        complain(f"{ENTRY} could not be loaded: {told(error, ())}", error)
        return 1
    function, prepare = getattr(module, "score", None), getattr(module, "prepare", None)
    if not callable(function):
        complain(f"{ENTRY} defines no function score(left, right)")
        return 1
    pairs = task.task == "pair"
    held, asked = sources(reading) if pairs else documents(reading)
    if callable(prepare):
        try:
            prepare(list(dict.fromkeys([*held.values(), *asked.values()])), config, task.seed)
        except BaseException as error:  # its message might quote any text
            complain(f"prepare() failed: {type(error).__name__[:60]}", error)
            return 1
    scorer = Scorer(function, bounded=pairs)
    write_rows(
        answer_pairs(scorer, held) if pairs else answer_queries(scorer, held, asked, task.top_k)
    )
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # neither a thread nor an exit handler of the module's decides how this ends
