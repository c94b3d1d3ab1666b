"""What a file in a bundle may be called, and how much of anything a bundle may hold."""

from __future__ import annotations

import re

from runner.errors import BundleError, Where

RECEIPT = "receipt.dsse.json"
MANIFEST = "manifest.json"
CRATE = "ro-crate-metadata.json"
SCHEMA_FOLDER = "schemas"
SCHEMA_SUFFIX = ".v1.schema.json"
FOLDER = "bundle"
ARCHIVE = "bundle.tar"
SIGNATURES = "bundle.sigs"  # beside the bundle: countersigning never changes sealed bytes

#: Files without which there is nothing to verify, in every bundle whatever came of the run.
REQUIRED = (
    "host.json", "images.json", "outcomes.jsonl", "plan.json", "protocol.json", "results.json",
    "run.yaml", CRATE,
)  # fmt: skip

MAX_METADATA = 16 << 20  # bytes of a document that is parsed whole
MAX_FILE = (8 << 30) - 1  # what the 11 octal digits of a ustar header can say
MAX_FILES = 100_000
MAX_PATH = 100  # the name field of a ustar header
_SEGMENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")


def path_problem(path: str) -> str | None:
    """Return why a path cannot stand in a bundle, or None. Pure."""
    if len(path) > MAX_PATH:
        return f"longer than {MAX_PATH} characters"
    if any(_SEGMENT.match(segment) is None for segment in path.split("/")):
        return "each segment is 1 to 64 of a-z 0-9 . _ - and starts with a letter or digit"
    return None


def check_path(path: str) -> None:
    """Raise ``BundleError`` for a path that cannot stand in a bundle's manifest."""
    problem = path_problem(path)
    if problem is None and path in (RECEIPT, MANIFEST):
        problem = "the name is the bundle's own"
    if problem is not None:
        raise BundleError(
            "bundle.path",
            f"{path[:200]!r} cannot be a file's name in a bundle: {problem}",
            fix="use short lower-case names without spaces",
            where=Where(file=MANIFEST),
        )


def ancestors(path: str) -> list[str]:
    """Return the directories above a path: ``a/b/c`` has ``a`` and ``a/b``."""
    segments = path.split("/")
    return ["/".join(segments[:count]) for count in range(1, len(segments))]
