"""Loading 100,000 source files: read, hashed, checked for text, and compared by normal form.

What ``sealbench freeze`` and the start of every run do with a benchmark of code. CPU time; the
files are small and in the page cache. Also shown: how it grows from a tenth of the files.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from bench.measure import Stopwatch, print_limit, scale_of, side
from tests.unit.code_files import table

FILES = 100_000
#: Made-up text of a file, about as long as a small class.
BODY = "class Number {\n    int value() {\n        return %d;\n    }\n}\n" * 4
GOAL_SECONDS, GOAL_GROWTH = 10.0, 1.25


def write(folder: Path, count: int) -> None:
    """Write so many different sources and their table."""
    (folder / "sources").mkdir(parents=True)
    rows = []
    for number in range(count):
        data = (BODY % ((number,) * 4)).encode()
        path = f"sources/s{number}.java"
        (folder / path).write_bytes(data)
        rows.append((f"s{number}", path, hashlib.sha256(data).hexdigest()))
    (folder / "files.csv").write_bytes(table(("id", "path", "sha256"), rows))


def load(watch: Stopwatch, folder: Path) -> int:
    """Load them all and return how many there are."""
    from runner.datasets.code_sources import load_sources

    with watch:
        return len(load_sources(folder, folder).by_id)


def main(arguments: list[str] | None = None) -> int:
    """Print the CPU seconds and the growth; 1 when a goal is missed."""
    count = int(FILES * scale_of(arguments, __doc__ or ""))
    with tempfile.TemporaryDirectory() as name:
        few, many = Path(name) / "few", Path(name) / "many"
        write(few, count // 10)
        write(many, count)
        tenth, whole = side(load, few), side(load, many)
    if (tenth.value, whole.value) != (count // 10, count):
        raise RuntimeError(f"{tenth.value} and {whole.value} of {count} files were loaded")
    print(f"{count:,} files: peak memory {whole.peak_mib:.0f} MiB")
    growth = whole.cpu_seconds / (10 * tenth.cpu_seconds)
    met = [
        print_limit(f"loading {count:,} source files", whole.cpu_seconds, "s CPU", GOAL_SECONDS),
        print_limit("a file of all / a file of a tenth", growth, "x", GOAL_GROWTH),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
