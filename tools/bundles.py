"""Which of our own protocols a bundle claims to follow, for `make verify` without PROTOCOL.

The claim chooses among protocols that lie in this checkout and nothing else: a bundle that follows
another one is refused by the verifier. Whoever expects one certain benchmark names it.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tools.steps import SetupError

MANIFEST = "manifest.json"
MAX_BYTES = 16 << 20  # cap on metadata, as in the bundle's format


def claimed_benchmark(bundle: Path) -> str:
    """Return the benchmark id in the manifest of a bundle folder, its parent, or a tar."""
    try:
        document = json.loads(_manifest_bytes(bundle))
        return str(document["benchmark"]["id"])
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
        raise SetupError(
            f"{bundle} holds no readable {MANIFEST}: {error}",
            fix="name a bundle folder, the folder that holds it, or a bundle.tar: BUNDLE=...",
            exit_code=11,
        ) from error


def own_protocols(folder: Path) -> dict[str, Path]:
    """Return benchmark id -> protocol file, for the protocols in a folder of this checkout."""
    known: dict[str, Path] = {}
    for path in sorted(folder.glob("*.protocol.json")):
        try:
            known[str(json.loads(path.read_bytes())["benchmark"]["id"])] = path
        except (OSError, ValueError, KeyError, TypeError):
            continue  # tests check them; here a broken one is just not the one
    return known


def own_protocol(benchmark: str, known: Mapping[str, Path]) -> Path:
    """Return the protocol file of a benchmark among those of this checkout."""
    if benchmark not in known:
        raise SetupError(
            f"the bundle says that it follows {benchmark!r:.80}, which is not in this checkout",
            fix="name the protocol that you expect: PROTOCOL=file or PROTOCOL=sha256:... "
            f"(here are: {', '.join(sorted(known)) or 'none'})",
            exit_code=5,
        )
    return known[benchmark]


def has_data(protocol: Path, data_root: Path) -> bool:
    """Whether every dataset of a protocol file has its folder under ``data_root``."""
    try:
        names = [str(dataset["name"]) for dataset in json.loads(protocol.read_bytes())["datasets"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False  # an id instead of a file, or a file that the verifier explains
    return all((data_root / name).is_dir() for name in names)


def _manifest_bytes(bundle: Path) -> bytes:
    if bundle.is_dir():
        inner = bundle / "bundle"
        folder = inner if inner.is_dir() else bundle
        with (folder / MANIFEST).open("rb") as stream:
            return stream.read(MAX_BYTES)
    with tarfile.open(bundle, mode="r|") as archive:  # a stream: nothing is extracted
        for member, _ in zip(archive, range(4), strict=False):
            if member.name == MANIFEST and member.isreg() and member.size <= MAX_BYTES:
                stream_ = archive.extractfile(member)
                return b"" if stream_ is None else stream_.read()
    raise ValueError("not among the first members of the archive")
