"""First use: what `make` needs before there is an environment to run in. Standard library only."""

import sys

# Before any module with newer syntax is read: an old Python gets a sentence, not a SyntaxError.
if sys.version_info < (3, 11):  # noqa: UP036 - this is the check that makes the others true
    sys.stderr.write(
        "sealbench: Python 3.11 or newer is needed, this is {}.{}\n"
        "  fix: install one and name it: make PYTHON=python3.12 ...\n".format(*sys.version_info[:2])
    )
    sys.exit(22)
