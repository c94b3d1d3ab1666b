"""The command line: one command, its exit code, and the one place that catches errors.

What a command does lives in ``runner/commands/``, imported only when that command runs: `--help`,
`check` and `plan` must answer at once.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from runner.arguments import build_parser
from runner.errors import EXIT_CANCELLED, SealbenchError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Rows and labels live to the end; looking through all of them for cycles is a tenth of the CPU.
    gc.set_threshold(50_000, 50, 50)
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    # Matrices are small here: threads that wait for each other burn more than they save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        parsed = build_parser().parse_args(arguments)
        module, _, function = parsed.handler.partition(":")
        handler = getattr(import_module(f"runner.commands.{module}"), function)
        return int(handler(parsed))
    except SealbenchError as error:
        _report(error, as_json=as_json)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("sealbench: cancelled\n")
        return EXIT_CANCELLED
    except BrokenPipeError:
        # The reader of a stream went away in the middle of the work, which is not known to be done.
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    except Exception:  # nothing that we know of: all there is to say is where it happened
        import traceback

        traceback.print_exc()
        sys.stderr.write("sealbench: this is a fault of our own; please report the lines above\n")
        return SealbenchError.exit_code


def _report(error: SealbenchError, *, as_json: bool) -> None:
    if as_json:
        from runner.commands.output import tell

        with suppress(SealbenchError):  # the error's own exit code says more
            tell(json.dumps(error.as_dict(), ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"sealbench: {error}\n  fix: {error.fix}\n")


if __name__ == "__main__":
    sys.exit(main())
