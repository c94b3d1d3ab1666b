"""The method ``llm``: a score for each reviewer and submission by asking a language model.

A reviewer's row has a score for every submission or an error: a missing score is no zero. The first
answer that says that the endpoint will never answer (a wrong key, a host that is not allowed) ends
the asking, and all reviewers that are left get that error.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Event
from typing import Any

from sealbench_net import secret
from sealbench_sdk import InputError, Task, input_folder, load_task, output_folder

from llm_scorer.asking import FATAL, Answer, Endpoint, Question, Replay, Source, settle
from llm_scorer.prompt import request_body
from llm_scorer.tape import Recorder, Tape, key_of

RECORDINGS_VARIABLE = "SEALBENCH_RECORDINGS"
_NOT_ASKED = Answer(score=None, error="not-asked")


def main() -> None:
    """Read the inputs, ask or replay, write a row for every reviewer."""
    task = load_task()
    config = checked(task)
    submissions = list(_lines(input_folder() / "submissions.jsonl"))
    source = source_of(config)
    path = output_folder() / "rows.jsonl"
    with (
        Recorder() if not config["replay"] else nullcontext() as recorder,
        path.open("wb", buffering=0) as rows,
        ThreadPoolExecutor(config["parallel"]) as pool,
    ):
        scorer = Scorer(source, config, pool)
        for reviewer in _lines(input_folder() / "reviewers.jsonl"):
            answers = scorer.answers(reviewer, submissions)
            if recorder is not None:
                recorder.write(attempt for answer in answers for attempt in answer.attempts)
            rows.write(row_of(reviewer["_id"], submissions, answers, scorer.fatal))


def checked(task: Task) -> Mapping[str, Any]:
    """Return the task's config; ``InputError`` for what cannot work."""
    config = task.config
    for name in ("attempts", "parallel", "profile_length", "abstract_characters"):
        if config[name] < 1:
            raise InputError(f"{name} is less than 1")
    if config["timeout_s"] <= 0 or config["backoff_s"] < 0:
        raise InputError("timeout_s is above 0 and backoff_s is 0 or more")
    if not config["model"]:
        raise InputError("no model: give config.model")
    if not config["replay"] and not config["endpoint"]:
        raise InputError("no endpoint: give config.endpoint, or recordings and config.replay")
    return config


def source_of(config: Mapping[str, Any]) -> Source:
    """Return where answers come from: the endpoint, or what was recorded."""
    if config["replay"]:
        path = os.environ.get(RECORDINGS_VARIABLE)
        if not path:
            raise InputError("nothing to replay: give `recordings` in the run manifest")
        return Replay(Tape(Path(path)))
    key = secret(config["key"]) if config["key"] else ""
    return Endpoint(config["endpoint"], key, config["timeout_s"], _authorities())


def _authorities() -> ssl.SSLContext | None:
    """The certificate authorities that come with the image; None: the system's, if it has any."""
    with suppress(ImportError):
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    return None


class Scorer:
    """Asks about all submissions of one reviewer after the other; ``fatal`` ended the asking."""

    def __init__(self, source: Source, config: Mapping[str, Any], pool: ThreadPoolExecutor) -> None:
        self._source, self._config, self._pool = source, config, pool
        self._stop = Event()
        self.fatal: str | None = None

    def answers(
        self, reviewer: Mapping[str, Any], submissions: list[dict[str, Any]]
    ) -> list[Answer]:
        """Return an answer for each submission, in order."""
        if self._stop.is_set():
            return [_NOT_ASKED] * len(submissions)

        def ask(submission: dict[str, Any]) -> Answer:
            if self._stop.is_set():
                return _NOT_ASKED
            body = request_body(reviewer["papers"], submission, self._config)
            question = Question(
                reviewer_id=reviewer["_id"],
                paper_id=submission["_id"],
                body=body,
                key=key_of(body),
            )
            answer = settle(self._source, question, self._config)
            if answer.error in FATAL:
                self._stop.set()
            return answer

        found = list(self._pool.map(ask, submissions))
        # The first in the order of the submissions, whichever came first: so a replay finds it too.
        self.fatal = next((one.error for one in found if one.error in FATAL), None)
        return found


def row_of(
    reviewer_id: str,
    submissions: list[dict[str, Any]],
    answers: list[Answer],
    fatal: str | None,
) -> bytes:
    """Return a reviewer's row as a line."""
    failed = [answer.error for answer in answers if answer.score is None]
    scores = {
        paper["_id"]: answer.score for paper, answer in zip(submissions, answers, strict=True)
    }
    error = None
    if failed:
        error = fatal or f"{len(failed)} of {len(answers)} pairs have no score, first: {failed[0]}"
    row = {"reviewer_id": reviewer_id, "scores": {} if error else scores, "error": error}
    return json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for line in stream:
            yield json.loads(line)


if __name__ == "__main__":
    main()
