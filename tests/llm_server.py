"""A local server that speaks chat completions, well or badly, as a test tells it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY = "sk-test-0123456789-abcdefgh"
SLOW_S = 1.5


def good(score: float, why: str = "They share a subject.") -> str:
    return json.dumps({"score": score, "explanation": why})


#: What an answer's text is for each way to behave; ``ok`` scores by shared words.
TEXTS: Mapping[str, str] = {
    "120": good(120),
    "about": '{"score": "about 70", "explanation": "x"}',
    "bare": "about 70",
    "nothing": "",
    "prose": f"Here is my answer: {good(70)} I hope it helps.",
    "fence": f"```json\n{good(70)}\n```",
    "key": good(70, f"Your key is {KEY}."),
}


class LlmServer:
    """Serves at ``http://127.0.0.1:<port>/v1``. ``ways`` maps a submission's title to how its
    requests are answered, one after the other, the last one for all that follow."""

    def __init__(self, ways: Mapping[str, Sequence[str]] | None = None) -> None:
        self.ways = dict(ways or {})
        self.requests: list[dict[str, Any]] = []
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: object) -> None:
                """Tests have no use for it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = int(self._server.server_address[1])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}/v1"

    def __enter__(self) -> LlmServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        data = json.loads(body["messages"][1]["content"])
        who = json.dumps(data, sort_keys=True)
        ways = self.ways.get(data["submission"]["title"], ["ok"])
        with self._lock:
            number = self._seen[who] = self._seen.get(who, 0) + 1
            self.requests.append(body)
        way = ways[min(number, len(ways)) - 1]
        if handler.headers["Authorization"] != f"Bearer {KEY}":
            way = "401"
        if way == "slow":
            time.sleep(SLOW_S)
        if way == "reset":
            handler.close_connection = True
            return
        self._send(handler, way, self._text(way, data))

    @staticmethod
    def _text(way: str, data: Mapping[str, Any]) -> str:
        if way in TEXTS:
            return TEXTS[way]
        words = set(data["submission"]["title"].lower().split())
        known = {word for one in data["reviewer_papers"] for word in one["title"].lower().split()}
        return good(round(100 * len(words & known) / len(words), 1))

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, way: str, text: str) -> None:
        status = int(way) if way in ("401", "429", "500") else 200
        reason = "length" if way == "cut" else "stop"
        document = {
            "model": "local-test-model",
            "choices": [{"finish_reason": reason, "message": {"content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }
        body = b"<html>oops" if way == "garbage" else json.dumps(document).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
