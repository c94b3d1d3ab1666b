"""Takes memory until it is stopped."""

from __future__ import annotations

from sealbench_sdk import load_task

CHUNK_MIB = 8


def main() -> None:
    """``config``: mib, an upper bound for runs without a memory limit."""
    hoard = []
    for _ in range(int(load_task().config.get("mib", 4096)) // CHUNK_MIB):
        # Ones, not zeros: untouched zero pages would cost nothing.
        hoard.append(b"\x01" * (CHUNK_MIB << 20))
    print(f"nothing stopped me at {len(hoard) * CHUNK_MIB} MiB")


if __name__ == "__main__":
    main()
