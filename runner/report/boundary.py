"""Where the claims of a bundle end, for readers: the sentences of claims.json, and the freeze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.protocol.splits import HELDOUT
from runner.report.page import Html, Section, items, paragraph
from runner.verify.documents import Documents

TITLE = "What this shows, and what it does not"


def boundary_section(boundary: Mapping[str, Sequence[str]]) -> Section:
    """Return the section of the page: two lists, word for word those of claims.json."""
    return Section(
        title=TITLE,
        parts=[
            paragraph("From the facts of this run alone, as claims.json has it. It shows:"),
            items(boundary["shows"]),
            paragraph("It does not show:"),
            items(boundary["does_not_show"]),
        ],
    )


def boundary_line(boundary: Mapping[str, Sequence[str]], where: str) -> str:
    """Return the line of a run's summary that points to them."""
    shows, not_shown = len(boundary["shows"]), len(boundary["does_not_show"])
    return (
        f"{TITLE[0].lower()}{TITLE[1:]}: {where} ({shows} and {not_shown} sentences), and the page "
        "of `sealbench report`"
    )


def freeze_notes(documents: Documents, split: str) -> list[str]:
    """Say beside a held-out table whether its configuration was settled before; else nothing."""
    if split != HELDOUT or documents.claims is None:
        return []
    return [freeze_state(documents.claims["config_freeze"], documents.frozen_by)]


def freeze_state(frozen: Mapping[str, Any] | None, keyid: str | None) -> str:
    """Return the state of the configuration freeze; ``keyid`` is None where nobody's signature on
    it was checked."""
    if frozen is None:
        return "no configuration freeze: held-out figures are not confirmatory"
    by = "a key that was not checked" if keyid is None else f"key {keyid[:16]}"
    return f"configuration settled before (signed {frozen['frozen_on']} by {by})"


def remarks(texts: Sequence[str]) -> list[Html]:
    """Return sentences that have no full stop yet as paragraphs."""
    return [paragraph(f"{text[0].upper()}{text[1:]}.") for text in texts]
