"""``data ir-datasets``: a collection that another package keeps, as files that can be frozen."""

from __future__ import annotations

import sys
from argparse import Namespace

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
