"""Where a run manifest finds its protocol and its data: JSON on standard output.

Runs inside the environment, for the set-up itself cannot read YAML:
``python -m tools.manifest_paths MANIFEST``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from runner.errors import SealbenchError
from runner.manifest import load_run_manifest


def main(path: str) -> int:
    """Print ``{"protocol", "data_root"}``, or the error as `sealbench --json` would."""
    try:
        manifest = load_run_manifest(Path(path))
    except SealbenchError as error:
        sys.stdout.write(json.dumps(error.as_dict()) + "\n")
        return error.exit_code
    found = {
        "protocol": str(manifest.protocol),
        "data_root": None if manifest.data_root is None else str(manifest.data_root),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
