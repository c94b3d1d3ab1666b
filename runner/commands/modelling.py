"""``models``: what a folder of model files is, as a run manifest names it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from runner.commands.output import emit, table
from runner.errors import EXIT_OK
from runner.models import read_model


def digest(arguments: Namespace) -> int:
    """Print the digest of a folder's content, and of each of its files."""
    found = read_model(arguments.folder)
    document = {
        "digest": found.digest,
        "size": found.size,
        "files": [asdict(file) for file in found.files],
    }
    rows = [(file.sha256, str(file.size), file.name) for file in found.files]
    text = table(("sha256", "size", "file"), rows) + f"\ndigest: {found.digest}\n"
    emit(arguments, document, text)
    return EXIT_OK
