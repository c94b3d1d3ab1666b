"""One digest of the package's own files: what coreutils gives, and null where it cannot be read."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner import host
from runner.engine.fake import FAKE_INFO
from runner.executable import files_digest
from runner.host import host_document
from runner.schemas import is_valid

LISTED = (
    r"find runner schemas \( -name '*.py' -o -name '*.schema.json' \) -type f"
    " | LC_ALL=C sort | xargs sha256sum | sha256sum"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in {
        "runner/a.py": "1", "runner/a-b.py": "2", "runner/bundle/x.py": "3",
        "runner/__pycache__/a.pyc": "no", "runner/notes.txt": "no",
        "schemas/plan.v1.schema.json": "{}", "schemas/other.json": "no", "images/x.py": "no",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_is_what_coreutils_gives(package: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", LISTED], cwd=package, check=True, capture_output=True, text=True
    )
    assert files_digest(package) == (f"sha256:{done.stdout.split()[0]}", "")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("runner/a.py", True),
        ("runner/bundle/x.py", True),
        ("schemas/plan.v1.schema.json", True),
        ("runner/__pycache__/a.pyc", False),
        ("images/x.py", False),
    ],
)
def test_every_file_that_decides_counts_and_no_other(
    package: Path, name: str, counts: bool
) -> None:
    before = files_digest(package)
    (package / name).write_text("changed")
    assert (files_digest(package) != before) == counts
    (package / name).rename(package / f"{name}.away")
    assert (files_digest(package) != before) == counts


def test_without_files_it_is_null_with_a_reason(tmp_path: Path) -> None:
    assert files_digest(tmp_path) == (None, "runner/ has no files of its own")


def test_what_cannot_be_read_is_null_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    def unread(_self: Path) -> bytes:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", unread)
        found = files_digest(package)
    assert found == (None, "a file of the package cannot be read")


def described() -> Any:
    return host_document(FAKE_INFO, load_start=None, load_end=None)


def test_the_host_document_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = described()
    assert found["runner"]["files_digest"] == files_digest()[0]
    assert "runner.files_digest" not in found["unmeasured"]
    monkeypatch.setattr(host, "files_digest", lambda: (None, "unread"))
    found = described()
    assert found["runner"]["files_digest"] is None
    assert found["unmeasured"]["runner.files_digest"] == "unread"
    assert is_valid("host", found)
