"""The pages in a real browser: drawn at narrow and wide widths, quiet, and loading nothing.

Whatever a page asked of the network would go through a proxy of the test's own, which answers
nobody and remembers who was asked for. Two pages that do wrong show that it would be seen.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runner.registry import AddRequest, Registry
from runner.report.benchmark import benchmark_page
from runner.report.leaderboard import as_html, rows_of
from tests.plagiarism import bench
from tests.sealed import TRUST, sandbox

NARROW, WIDE = 400, 1100
#: A blank picture takes 8 to 13 kB at these widths, a page at least 130.
DRAWN_BYTES = 50_000
CONSOLE = re.compile(r":CONSOLE[(:][0-9]+[)]?\] (.*)")
_ASKED = re.compile(rb"(?:CONNECT |[A-Z]+ https?://)([^:/ ]+)")


@dataclass(slots=True)
class Proxy:
    """Accepts connections, notes the host that each one wants, and closes them."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    hosts: list[str] = field(default_factory=list)

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed: the tests are over
                return
            with connection:
                connection.settimeout(2)
                try:
                    asked = _ASKED.match(connection.recv(4096))
                except OSError:
                    continue
                if asked:
                    self.hosts.append(asked[1].decode("ascii", "replace"))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of a page: its tree, its picture, the console, and hosts that it asked for."""

    dom: str
    png: bytes
    console: list[str]
    asked: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """A headless browser with a profile of its own."""

    program: str
    folder: Path
    proxy: Proxy

    def show(self, text: str, width: int) -> Seen:
        page, picture = self.folder / "page.html", self.folder / "page.png"
        page.write_text(text, encoding="utf-8")
        picture.unlink(missing_ok=True)
        self.proxy.hosts.clear()
        command = [
            self.program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", f"--user-data-dir={self.folder / 'profile'}",
            f"--proxy-server={self.proxy.address}", "--enable-logging=stderr", "--v=0",
            f"--window-size={width},2400", f"--screenshot={picture}", "--dump-dom", page.as_uri(),
        ]  # fmt: skip
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=env
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return Seen(
            dom=done.stdout,
            png=picture.read_bytes(),
            console=CONSOLE.findall(done.stderr),
            # A browser talks to its maker as well; a page can only ask for a host that it names.
            asked=[host for host in self.proxy.hosts if host in text],
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        reason = "no Chromium here (SEALBENCH_REQUIRE_BROWSER=1 makes that a failure)"
        if os.environ.get("SEALBENCH_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    proxy = Proxy()
    threading.Thread(target=proxy.serve, daemon=True).start()
    yield Browser(program=program, folder=tmp_path_factory.mktemp("browser"), proxy=proxy)
    proxy.listener.shutdown(socket.SHUT_RDWR)
    proxy.listener.close()


def report_page(folder: Path) -> str:
    box = sandbox(folder, "overlap", "backwards")
    box.run()
    return benchmark_page(box.verify(), None)


def leaderboard_page(folder: Path) -> str:
    made = bench(folder)
    made.run(folder / "run", "alike", "lengths", "crash")
    registry = Registry(folder / "registry")
    registry.add(
        AddRequest(
            bundle=folder / "run" / "bundle",
            protocol=made.protocol,
            data_root=made.data_root,
            trust=TRUST,
        )
    )
    return as_html(rows_of(registry.entries()))


PAGES = {
    "report": (report_page, ["overlap", "backwards"]),
    "leaderboard": (leaderboard_page, ["alike", "lengths", "crash"]),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_quietly_and_loads_nothing(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    make, methods = PAGES[name]
    text = make(tmp_path / "made")
    for width in (NARROW, WIDE):
        seen = browser.show(text, width)
        assert seen.console == []
        assert seen.asked == []
        assert all(method in seen.dom for method in methods)
        assert "<script" not in seen.dom
        assert picture_width(seen.png) == width
        assert len(seen.png) > DRAWN_BYTES, "blank, or nearly"


def test_what_a_page_does_wrong_would_be_seen(browser: Browser) -> None:
    image = '<img src="http://elsewhere.invalid/x.png">'
    policy = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"
    loading = browser.show(f"<!doctype html><title>x</title>{image}", WIDE)
    assert loading.asked == ["elsewhere.invalid"]
    assert len(loading.png) < DRAWN_BYTES
    blocked = browser.show(f"<!doctype html>{policy}<title>x</title>{image}", WIDE)
    assert blocked.asked == []
    assert any("Content Security Policy" in line for line in blocked.console)


def picture_width(png: bytes) -> int:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int(struct.unpack(">I", png[16:20])[0])
