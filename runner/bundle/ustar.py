"""The canonical archive: each header is a pure function of a path and a size.

What GNU tar writes with ``--format=ustar --mtime=@0 --owner=:0 --group=:0 --numeric-owner
--mode=0644`` for plain files in the given order, to the byte. A reader need not parse headers at
all: it computes the one that must come and compares.
"""

from __future__ import annotations

BLOCK = 512
RECORD = 20 * BLOCK  # GNU tar's default: archives are padded to whole records
MAX_SIZE = 8**11 - 1
_SIZE_FIELD = slice(124, 136)


def header(path: str, size: int) -> bytes:
    """Return the 512 bytes before a file; ``ValueError`` for what ustar cannot say.

    Layout: name 100, mode 8, uid 8, gid 8, size 12, mtime 12, checksum 8, type 1, link 100,
    magic and version 8, user 32, group 32, device 16, prefix 155, padding 12.
    """
    name = path.encode("ascii")
    if not name or len(name) > 100 or not 0 <= size <= MAX_SIZE:
        raise ValueError("path or size does not fit a ustar header")
    fields = b"".join(
        (
            name.ljust(100, b"\0"),
            b"0000644\0" + b"0000000\0" * 2,
            b"%011o\0" % size,
            b"00000000000\0",
            b" " * 8,  # the checksum counts its own field as blanks
            b"0" + bytes(100),
            b"ustar\x0000" + bytes(64),
            b"0000000\0" * 2 + bytes(155 + 12),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def claimed_size(block: bytes) -> int | None:
    """Return what a header's size field says, or None when it is not 11 octal digits."""
    field = block[_SIZE_FIELD]
    digits = field[:11]
    if len(field) != 12 or field[11] != 0 or not set(digits) <= set(b"01234567"):
        return None
    return int(digits, 8)


def padding(size: int) -> int:
    """Return how many zero bytes follow a file of this size."""
    return -size % BLOCK


def trailer(length: int) -> int:
    """Return how many zero bytes end an archive whose entries take ``length`` bytes: two blocks,
    then up to a whole record.
    """
    return 2 * BLOCK + -(length + 2 * BLOCK) % RECORD
