"""The parser of the command line: its errors are ours, and name what was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from runner.errors import UsageError


class Parser(argparse.ArgumentParser):
    """Raises ``UsageError`` instead of leaving, with the help of the very command that was asked.

    argparse hands what a command does not know to its parent, which knows neither the command's
    options nor its help: here the command itself refuses it.
    """

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]  # argparse has three overloads of it
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse whatever is not known."""
        self._given = [] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError``; a misspelt option is named, whatever it led to."""
        raise UsageError(
            "usage.arguments", f"{message}{self._meant(message)}", fix=f"see `{self.prog} --help`"
        )

    def _meant(self, message: str) -> str:
        if self._subparsers is not None:
            return ""  # the options after a command are the command's
        from runner.schema_faults import suggest

        known = [name for name in self._option_string_actions if name.startswith("--")]
        for given in self._given:
            name = given.partition("=")[0]
            if name == "--":
                break
            if name.startswith("--") and not any(one.startswith(name) for one in known):
                told = "" if name in message else f"; {name} is not known"
                return f"{told}{suggest(name, known)}"
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from runner.schema_faults import suggest

        known = [str(one) for one in action.choices]
        near = suggest(str(value), known)
        choose = f" (choose from {', '.join(known)})"
        message = f"invalid choice: {value!r}{near or choose}"
        raise argparse.ArgumentError(action, message)
