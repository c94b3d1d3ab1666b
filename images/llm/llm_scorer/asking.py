"""One pair: ask, and ask again within the budget of attempts, or look at the tape instead."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sealbench_net import NetworkError, Reply, request

from llm_scorer.reply import NoScore, read_completion, read_score
from llm_scorer.tape import Attempt, Tape

#: The endpoint will not answer anything: the rest is not asked.
FATAL = frozenset({"no-proxy", "refused", "tls", "http-401", "http-403", "http-404"})
#: Asking the same again would get the same answer.
FINAL = FATAL | {"http-400", "http-413", "http-422", "not-recorded"}
MAX_BACKOFF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A pair of opaque ids, the request's bytes, and their digest."""

    reviewer_id: str
    paper_id: str
    body: bytes
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The score of a pair, or why it has none; and every attempt."""

    score: float | None
    error: str | None
    attempts: tuple[Attempt, ...] = ()


class Source(Protocol):
    """Where an attempt's outcome comes from."""

    def attempt(self, question: Question, number: int) -> Attempt: ...

    def wait(self, seconds: float) -> None: ...


def settle(source: Source, question: Question, config: Mapping[str, Any]) -> Answer:
    """Attempt a question until it has a score or its attempts are used up."""
    attempts: list[Attempt] = []
    error = "not-asked"
    for number in range(1, config["attempts"] + 1):
        if number > 1:
            source.wait(min(config["backoff_s"] * 2 ** (number - 2), MAX_BACKOFF_S))
        one = source.attempt(question, number)
        attempts.append(one)
        error = one.error or ""
        if one.error is None:
            try:
                score = read_score(one.content or "")
            except NoScore as refused:
                error = refused.kind
            else:
                return Answer(score=score, error=None, attempts=tuple(attempts))
        if error in FINAL:
            break
    return Answer(score=None, error=error, attempts=tuple(attempts))


class Endpoint:
    """Asks over the network. ``key`` is sent as a bearer token, "" for none."""

    def __init__(
        self,
        url: str,
        key: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._key, self._timeout_s, self._tls, self._sleep = key, timeout_s, tls, sleep

    def attempt(self, question: Question, number: int) -> Attempt:
        found: dict[str, Any] = {"error": None}
        try:
            reply = self._ask(question.body)
            completion = read_completion(reply.status, reply.body, self._key)
        except (NetworkError, NoScore) as error:
            found["error"] = error.kind
        else:
            found |= {
                "content": completion.content,
                "model": completion.model,
                "prompt_tokens": completion.prompt_tokens,
                "completion_tokens": completion.completion_tokens,
            }
        return Attempt(
            key=question.key,
            attempt=number,
            reviewer_id=question.reviewer_id,
            paper_id=question.paper_id,
            **found,
        )

    def wait(self, seconds: float) -> None:
        self._sleep(seconds)

    def _ask(self, body: bytes) -> Reply:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return request("POST", self._url, headers, body, timeout_s=self._timeout_s, tls=self._tls)


class Replay:
    """Answers from a tape, at once."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def attempt(self, question: Question, number: int) -> Attempt:
        found = self._tape.get(question.key, number)
        return found or Attempt(
            key=question.key,
            attempt=number,
            reviewer_id=question.reviewer_id,
            paper_id=question.paper_id,
            error="not-recorded",
        )

    def wait(self, seconds: float) -> None:
        """Nobody has to be spared."""
