"""``data``: collections that others keep or publish, as files that can be frozen or bound."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from runner.commands.output import emit
from runner.datasets.irds import convert, freeze_entry, load_ir_dataset
from runner.errors import EXIT_OK


def ir_datasets(arguments: Namespace) -> int:
    """Convert, and print what a freeze manifest needs."""
    source = load_ir_dataset(arguments.ident)

    def tell(text: str) -> None:
        if not arguments.json:
            sys.stderr.write(f"{arguments.ident}: {text}\n")

    made = convert(source, arguments.ident, arguments.out, name=arguments.name, progress=tell)
    dataset, entry = made.dataset, freeze_entry(made)
    document = {
        "folder": str(made.folder),
        "name": dataset.name,
        "description": made.description,
        "documents": dataset.document_count,
        "queries": len(dataset.queries),
        "judgments": dataset.judgment_count,
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in dataset.files],
        "freeze_entry": entry,
    }
    text = f"wrote {made.folder}\nentry for a freeze manifest, under `datasets:`\n\n{entry}"
    emit(arguments, document, text)
    return EXIT_OK


def irplag(arguments: Namespace) -> int:
    """Lay out IR-Plag as ``irplag-v1`` was frozen from it."""
    from runner.datasets.irplag import convert_irplag

    return _placed(arguments, [convert_irplag(arguments.published, arguments.out)])


def reviewer_gold(arguments: Namespace) -> int:
    """Lay out Reviewer-Gold, and its full texts where the checkout has them."""
    from runner.datasets.reviewer_gold import (
        convert_full_texts,
        convert_reviewer_gold,
        has_full_texts,
    )

    folders = [convert_reviewer_gold(arguments.published, arguments.out)]
    if has_full_texts(arguments.published):
        folders.append(convert_full_texts(arguments.published, arguments.out))
    return _placed(arguments, folders)


def _placed(arguments: Namespace, folders: list[Path]) -> int:
    text = "".join(f"wrote {folder}\n" for folder in folders)
    text += "whether they are the frozen data, `sealbench bind <protocol> --data-root "
    text += f"{arguments.out}` says"
    emit(arguments, {"folders": [str(folder) for folder in folders]}, text)
    return EXIT_OK
