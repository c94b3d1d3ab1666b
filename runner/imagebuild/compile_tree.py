"""Run by the image's own Python, never imported: compile the files named on standard input.

Each line is a path below the folder given as argument. Bytecode is of the unchecked-hash kind: it
holds no time, and Python takes it without looking at the source again. Compiling runs no code of
the files.
"""

import importlib.util
import os
import py_compile
import sys


def main() -> None:
    """Compile in the order given, in one process, so that equal inputs give equal bytes."""
    root = sys.argv[1]
    for line in sys.stdin:
        path = line.rstrip("\n")
        try:
            py_compile.compile(
                os.path.join(root, path),  # noqa: PTH118 - pathlib would be most of the start-up
                cfile=os.path.join(root, importlib.util.cache_from_source(path)),  # noqa: PTH118
                dfile=f"/{path}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except py_compile.PyCompileError:
            continue  # templates and files for other versions: they have no bytecode anywhere
        sys.stdout.write(path + "\n")


main()
