"""Fills the output folder until it is stopped."""

from __future__ import annotations

import time

from sealbench_sdk import load_task, output_folder

FILE_KIB = 256


def main() -> None:
    """``config``: mib and sleep_s, upper bounds for runs outside a supervisor."""
    config = load_task().config
    folder = output_folder() / "artifacts"
    folder.mkdir(exist_ok=True)
    try:
        for number in range(int(config.get("mib", 64)) * 1024 // FILE_KIB):
            (folder / f"flood-{number:05}.bin").write_bytes(b"\x00" * (FILE_KIB << 10))
    except OSError as error:
        print(f"cannot write on: {type(error).__name__}")
    # Stays alive, so that it is the cap and not the end of this method that stops it.
    time.sleep(float(config.get("sleep_s", 600)))


if __name__ == "__main__":
    main()
