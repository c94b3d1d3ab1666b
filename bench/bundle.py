"""A sealed bundle of 1,000,000 rows of 755 bytes: verified as read, beside plain SHA-256.

"Intact" is receipt, signature, manifest, set of files and every digest. The floor is hashlib over
the bytes of the same files with the same block size: what the checks cost beyond it is ours. For
the archive it is the same loop that also writes the bytes.
Memory is compared between a tenth of the rows and all of them. Also: writing, the archive both
ways, and how much a small bundle takes in a fresh process, imports included.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Stopwatch, print_limit, scale_of, side
from runner.bundle.archive import export_archive, import_archive
from runner.bundle.read import BundleView, open_bundle
from tests.unit.bundle_files import KEY, PROTOCOL_ID, TRUST, seal

ROWS = 1_000_000
ROW_BYTES = 755
BLOCK = 1 << 20
VERIFY_RATIO = 1.25
ARCHIVE_RATIO = 1.25
GROWTH_MIB = 4.0
SMALL_SECONDS = 0.3


def write(watch: Stopwatch, folder: str, count: int) -> int:
    """Write and seal a bundle with ``count`` rows; return the bytes of its rows."""
    row = b'{"query_id":"%010d","ranking":[["d",1.0]],"latency_ms":null,"error":null,"pad":"'
    filler = b"x" * (ROW_BYTES - len(row % 0) - 3) + b'"}\n'
    with watch:
        seal(Path(folder), rows=(row % number + filler for number in range(count)))
    return count * ROW_BYTES


def plain(watch: Stopwatch, folder: str) -> int:
    """SHA-256 of every file of a bundle, nothing else; return the bytes."""
    total, buffer = 0, bytearray(BLOCK)
    with watch:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                digest = hashlib.sha256()
                with path.open("rb", buffering=0) as stream:
                    while count := stream.readinto(buffer):
                        digest.update(memoryview(buffer)[:count])
                        total += count
                digest.digest()
    return total


def copy(watch: Stopwatch, folder: str) -> None:
    """Read, hash and write the same bytes once, durably: the floor of an archive, either way."""
    buffer, source = bytearray(BLOCK), Path(folder) / "bundle"
    with watch, (Path(folder) / "copy").open("wb", buffering=0) as target:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                digest = hashlib.sha256()
                with path.open("rb", buffering=0) as stream:
                    while count := stream.readinto(buffer):
                        digest.update(memoryview(buffer)[:count])
                        target.write(memoryview(buffer)[:count])
        os.fsync(target.fileno())
    (Path(folder) / "copy").unlink()


def opened(folder: str) -> BundleView:
    return open_bundle(Path(folder) / "bundle", protocol_id=PROTOCOL_ID, trust=TRUST)


def verify(watch: Stopwatch, folder: str) -> int:
    """Everything of the level "intact"; return the number of files."""
    with watch, opened(folder) as view:
        if view.check_remaining():
            raise RuntimeError("a good bundle is refused")
        return len(view.manifest.files)


def read_lines(watch: Stopwatch, folder: str) -> int:
    """The rows line by line, verified in the same read; return how many."""
    count = 0
    with watch, opened(folder) as view:
        for entry in view.manifest.files:
            with view.open_verified(entry.path) as stream:
                count += sum(1 for _ in stream)
    return count


def export(watch: Stopwatch, folder: str) -> None:
    with watch, opened(folder) as view:
        export_archive(view, Path(folder) / "bundle.tar")


def unpack(watch: Stopwatch, folder: str) -> None:
    with watch:
        import_archive(Path(folder) / "bundle.tar", Path(folder) / "unpacked", trust=TRUST)


def from_nothing(watch: Stopwatch, folder: str) -> float:
    """Verify a small bundle in a process that has just started; return its whole CPU time."""
    verify(watch, folder)
    return time.process_time()


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; exit code 1 if a goal is missed."""
    scale = scale_of(arguments, __doc__ or "")
    total = max(10, round(ROWS * scale))
    with tempfile.TemporaryDirectory() as name:
        full, tenth, tiny = (str(Path(name) / part) for part in ("full", "tenth", "tiny"))
        written = side(write, full, total)
        side(write, tenth, total // 10)
        side(write, tiny, 300)
        floor, copied = side(plain, full), side(copy, full)
        checked, small = side(verify, full), side(verify, tenth)
        lines = side(read_lines, full)
        packed, taken = side(export, full), side(unpack, full)
        start = side(from_nothing, tiny)
    print(f"{total} rows of {ROW_BYTES} bytes, signed by {KEY.public.keyid[:16]}")
    print(f"  written and sealed: {written.cpu_seconds:.2f} s CPU, {written.peak_mib:.0f} MiB")
    print(f"  read by lines, verified: {lines.cpu_seconds:.2f} s CPU, {lines.peak_mib:.0f} MiB")
    print(f"  plain SHA-256: {floor.cpu_seconds:.2f} s CPU; intact: {checked.cpu_seconds:.2f}")
    met = [
        print_limit(
            "intact over plain SHA-256",
            checked.cpu_seconds / floor.cpu_seconds,
            "x",
            VERIFY_RATIO,
        ),
        print_limit(
            "export over copy and hash",
            packed.cpu_seconds / copied.cpu_seconds,
            "x",
            ARCHIVE_RATIO,
        ),
        print_limit(
            "import over copy and hash",
            taken.cpu_seconds / copied.cpu_seconds,
            "x",
            ARCHIVE_RATIO,
        ),
        print_limit(
            f"peak memory of {total} rows over that of {total // 10}",
            checked.peak_mib - small.peak_mib,
            "MiB",
            GROWTH_MIB,
        ),
        print_limit("a small bundle, intact, with imports", start.value, "s CPU", SMALL_SECONDS),
    ]
    print(f"  peak memory: {small.peak_mib:.0f} MiB, then {checked.peak_mib:.0f} MiB")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
