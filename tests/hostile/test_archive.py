"""Archives made to escape, to bloat, to hide or to lie: each is refused and nothing is left."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import resource
import shutil
import subprocess
import tarfile
import zlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.bundle import ustar
from runner.bundle.archive import END, export_archive, import_archive
from runner.bundle.manifest import parse_manifest
from runner.bundle.paths import MAX_METADATA
from runner.bundle.read import open_bundle
from runner.errors import BundleError, StorageError
from runner.trust import explicit
from tests.unit.bundle_files import PROTOCOL_ID, ROWS, TRUST, files_of, seal, signing_key

ROWS_FILE = "rows/bm25/tiny/part-00000.jsonl"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seal(tmp_path_factory.mktemp("sealed")).path


@pytest.fixture(scope="module")
def good(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of the canonical archive."""
    target = tmp_path_factory.mktemp("tar") / "bundle.tar"
    with open_bundle(sealed, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        return export_archive(view, target).read_bytes()


def unpack(folder: Path, data: bytes) -> Path:
    (folder / "bundle.tar").write_bytes(data)
    import_archive(folder / "bundle.tar", folder / "out" / "bundle", trust=TRUST)
    return folder / "out" / "bundle"


def refusal(folder: Path, data: bytes) -> tuple[str, str]:
    """Return (code, file) of the refusal; nothing may be left behind it."""
    with pytest.raises(BundleError) as caught:
        unpack(folder, data)
    assert not (folder / "out").exists() or list((folder / "out").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) in (["bundle.tar"], ["bundle.tar", "out"])
    assert caught.value.where is not None
    return caught.value.code, str(caught.value.where.file)


def entries(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = []
        for member in tar:
            stream = tar.extractfile(member)
            found.append((member.name, b"" if stream is None else stream.read()))
        return found


def packed(files: list[tuple[str, bytes]]) -> bytes:
    """Return a canonical archive of these files, whatever they are."""
    body = b"".join(
        ustar.header(name, len(data)) + data + bytes(ustar.padding(len(data)))
        for name, data in files
    )
    return body + bytes(ustar.trailer(len(body)))


def start_of(data: bytes, name: str) -> int:
    """Return where the header of a file is."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getmember(name).offset


# --- the canonical form ---------------------------------------------------------------------------


def test_a_round_trip_changes_nothing(sealed: Path, good: bytes, tmp_path: Path) -> None:
    out = unpack(tmp_path, good)
    assert files_of(out) == files_of(sealed)
    for name in files_of(sealed):
        assert (out / name).read_bytes() == (sealed / name).read_bytes()
    with open_bundle(out, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        assert view.check_remaining() == ()
    for path in [out, *out.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_it_is_byte_for_byte_what_gnu_tar_writes(sealed: Path, good: bytes, tmp_path: Path) -> None:
    manifest = parse_manifest((sealed / "manifest.json").read_bytes())
    order = ["receipt.dsse.json", "manifest.json", *(entry.path for entry in manifest.files)]
    subprocess.run(
        ["tar", "--format=ustar", "--mtime=@0", "--owner=:0", "--group=:0", "--numeric-owner",
         "--mode=0644", "-cf", str(tmp_path / "gnu.tar"), "-C", str(sealed), *order],
        check=True,
    )  # fmt: skip
    assert (tmp_path / "gnu.tar").read_bytes() == good


@pytest.mark.parametrize(
    ("path", "size"),
    [("a", 0), ("a", 1), ("a", 511), ("a", 512), ("a", 513), ("x" * 49 + "/" + "y" * 50, 10_240)],
)
def test_headers_and_padding_agree_with_gnu_tar(tmp_path: Path, path: str, size: int) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"z" * size)
    done = subprocess.run(
        ["tar", "--format=ustar", "--mtime=@0", "--owner=:0", "--group=:0", "--numeric-owner",
         "--mode=0644", "-cf", "-", path],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    assert done.stdout == packed([(path, b"z" * size)])


def test_the_largest_size_fits_its_field() -> None:
    assert ustar.claimed_size(ustar.header("a", ustar.MAX_SIZE)) == ustar.MAX_SIZE
    with tarfile.open(fileobj=io.BytesIO(ustar.header("a", ustar.MAX_SIZE) + bytes(1024))) as tar:
        assert tar.next().size == ustar.MAX_SIZE  # type: ignore[union-attr]  # there is one
    for path, size in (("a", ustar.MAX_SIZE + 1), ("a", -1), ("x" * 101, 0), ("", 0)):
        with pytest.raises(ValueError, match="does not fit"):
            ustar.header(path, size)


def test_tars_of_others_read_ours(good: bytes, sealed: Path) -> None:
    assert [name for name, _ in entries(good)][:2] == ["receipt.dsse.json", "manifest.json"]
    for name, data in entries(good):
        assert data == (sealed / name).read_bytes()


def test_export_is_deterministic_and_overwrites_nothing(
    sealed: Path, good: bytes, tmp_path: Path
) -> None:
    with open_bundle(sealed, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        for name in ("a.tar", "b.tar"):
            assert export_archive(view, tmp_path / name).read_bytes() == good
        assert view.unverified == ()
        with pytest.raises(StorageError) as caught:
            export_archive(view, tmp_path / "a.tar")
        assert caught.value.code == "storage.occupied"
        with pytest.raises(StorageError):
            export_archive(view, tmp_path / "none" / "a.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_export_refuses_a_file_that_changed_and_leaves_nothing(
    sealed: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(sealed, tmp_path / "bundle"))
    with open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        (bundle / ROWS_FILE).write_bytes(b"".join(reversed(ROWS)))
        with pytest.raises(BundleError) as caught:
            export_archive(view, tmp_path / "a.tar")
    assert caught.value.where is not None
    assert caught.value.where.file == ROWS_FILE
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_existing_target_is_never_touched(good: bytes, tmp_path: Path) -> None:
    out = unpack(tmp_path, good)
    before = files_of(out)
    for target in (out, tmp_path / "empty", tmp_path / "link"):
        if target.name == "empty":
            target.mkdir()
        if target.name == "link":
            target.symlink_to(tmp_path / "nowhere")
        with pytest.raises(StorageError) as caught:
            import_archive(tmp_path / "bundle.tar", target, trust=TRUST)
        assert caught.value.code == "storage.occupied"
    assert files_of(out) == before
    assert not (tmp_path / "nowhere").exists()


# --- gzip -----------------------------------------------------------------------------------------


def test_gzip_outside_is_read_and_written(sealed: Path, good: bytes, tmp_path: Path) -> None:
    with open_bundle(sealed, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        ours = export_archive(view, tmp_path / "ours.tar.gz", gzip=True).read_bytes()
    assert gzip.decompress(ours) == good
    assert ours[3:8] == bytes(5)  # no name, no time
    for number, data in enumerate((ours, gzip.compress(good, 1), gzip.compress(good, 0))):
        (tmp_path / str(number)).mkdir()
        assert files_of(unpack(tmp_path / str(number), data)) == files_of(sealed)


def test_gzip_streams_that_lie_are_refused(good: bytes, tmp_path: Path) -> None:
    zipped = gzip.compress(good)
    wrong_sum = zipped[:-8] + bytes([zipped[-8] ^ 1]) + zipped[-7:]
    for number, (data, code) in enumerate(
        [
            (zipped[:-1], "archive.truncated"),
            (zipped[:-9], "archive.truncated"),
            (zipped[: len(zipped) // 2], "archive.truncated"),
            (zipped + b"\0", "archive.trailing"),
            (zipped + zipped, "archive.trailing"),  # a second member: gunzip would join them
            (gzip.compress(good + b"\0"), "archive.trailing"),
            (wrong_sum, "archive.gzip"),
            (b"\x1f\x8b", "archive.truncated"),
            (b"\x1f\x8b\x08\xff" + bytes(100), "archive.gzip"),
            (gzip.compress(gzip.compress(good)), "archive.header"),
            (gzip.compress(b""), "archive.truncated"),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        assert refusal(tmp_path / str(number), data)[0] == code, number


def test_a_bomb_does_not_go_off(good: bytes, tmp_path: Path) -> None:
    """Zeros without end in few bytes: instead of an archive, behind a good one, as a document."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"".join(squeezer.compress(bytes(1 << 20)) for _ in range(200)) + squeezer.flush()
    behind = zlib.compressobj(9, zlib.DEFLATED, 31)
    trailing = behind.compress(good)
    trailing += b"".join(behind.compress(bytes(1 << 20)) for _ in range(200)) + behind.flush()
    claim = gzip.compress(ustar.header("receipt.dsse.json", ustar.MAX_SIZE) + bytes(1 << 20))
    for number, (data, code) in enumerate(
        [
            (zeros, "archive.header"),
            (trailing, "archive.trailing"),
            (claim, "bundle.too-large"),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        assert refusal(tmp_path / str(number), data)[0] == code


# --- every byte -----------------------------------------------------------------------------------


def owner_of(good: bytes, offset: int) -> str:
    """Return the file that a byte belongs to: its header, its content or the padding behind it."""
    with tarfile.open(fileobj=io.BytesIO(good)) as tar:
        for member in tar:
            end = member.offset_data + member.size + ustar.padding(member.size)
            if member.offset <= offset < end:
                return member.name
    return END


def test_one_flipped_bit_is_refused_and_the_file_named(good: bytes, tmp_path: Path) -> None:
    step = 1_021  # prime, so all parts of headers, contents and paddings are met
    for offset in [*range(0, len(good), step), len(good) - 1]:
        bad = bytearray(good)
        bad[offset] ^= 1 << offset % 8
        code, file = refusal(tmp_path, bytes(bad))
        assert file == owner_of(good, offset), (offset, code)


def test_truncation_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    for length in [*range(0, len(good), 1_021), len(good) - 1, len(good) - 512]:
        assert refusal(tmp_path, good[:length])[0] == "archive.truncated"


def test_what_follows_is_refused(good: bytes, tmp_path: Path) -> None:
    for more in (b"\0", b"x", bytes(512), bytes(10_240), good):
        assert refusal(tmp_path, good + more) == ("archive.trailing", END)
    # Two archives joined by the first one's end being cut off: tar -i reads on, we do not.
    end = ustar.trailer(sum(512 + len(d) + ustar.padding(len(d)) for _, d in entries(good)))
    assert refusal(tmp_path, good[:-end] + good)[0] == "archive.unlisted"


# --- entries --------------------------------------------------------------------------------------


def test_added_removed_swapped_and_repeated_files(good: bytes, tmp_path: Path) -> None:
    files = entries(good)
    at = [name for name, _ in files].index(ROWS_FILE)
    after = files[at + 1][0]
    swapped = [*files]
    swapped[at], swapped[at + 1] = files[at + 1], files[at]
    other = [(n, b"".join(reversed(ROWS)) if n == ROWS_FILE else d) for n, d in files]
    crlf = [(n, d.replace(b"\n", b"\r\n") if n == ROWS_FILE else d) for n, d in files]
    for number, (changed, expected) in enumerate(
        [
            ([*files, ("zzz", bytes(20_000))], ("archive.unlisted", END)),
            (files[:at] + files[at + 1 :], ("archive.header", ROWS_FILE)),
            (files[: at + 1] + files[at:], ("archive.header", after)),
            (swapped, ("archive.header", ROWS_FILE)),
            (other, ("bundle.digest", ROWS_FILE)),
            (crlf, ("archive.header", ROWS_FILE)),
            (files[1:], ("bundle.unsigned", "receipt.dsse.json")),
            ([files[0], *files[2:]], ("archive.header", "manifest.json")),
            ([files[1], files[0], *files[2:]], ("bundle.unsigned", "receipt.dsse.json")),
            (files[:2], ("archive.header", files[2][0])),
            (files[:1], ("archive.header", "manifest.json")),
            ([], ("archive.header", "receipt.dsse.json")),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        assert refusal(tmp_path / str(number), packed(changed)) == expected, number


Member = namedtuple("Member", "name type linkname size data")
HOSTILE = {
    "parent path": Member("../escaped", tarfile.REGTYPE, "", 4, b"evil"),
    "absolute path": Member("/tmp/escaped", tarfile.REGTYPE, "", 4, b"evil"),
    "parent inside": Member("rows/../../escaped", tarfile.REGTYPE, "", 4, b"evil"),
    "symlink": Member("rows/link", tarfile.SYMTYPE, "/etc", 0, b""),
    "symlink to the parent": Member("rows", tarfile.SYMTYPE, "..", 0, b""),
    "hard link": Member("rows/link", tarfile.LNKTYPE, "manifest.json", 0, b""),
    "fifo": Member("fifo", tarfile.FIFOTYPE, "", 0, b""),
    "device": Member("null", tarfile.CHRTYPE, "", 0, b""),
    "folder": Member("rows/empty", tarfile.DIRTYPE, "", 0, b""),
    "sparse": Member("host.json", tarfile.GNUTYPE_SPARSE, "", 0, b""),
    "contiguous": Member("host.json", tarfile.CONTTYPE, "", 11, b'{"cores":2}'),
    "old type": Member("host.json", tarfile.AREGTYPE, "", 11, b'{"cores":2}'),
    "unknown type": Member("host.json", b"Z", "", 11, b'{"cores":2}'),
    "long name": Member("a/" * 90 + "x", tarfile.REGTYPE, "", 4, b"evil"),
    "newline": Member("host\n.json", tarfile.REGTYPE, "", 4, b"evil"),
    "not UTF-8": Member("\udcff", tarfile.REGTYPE, "", 4, b"evil"),
    "dot": Member("./host.json", tarfile.REGTYPE, "", 11, b'{"cores":2}'),
    "upper case": Member("HOST.json", tarfile.REGTYPE, "", 11, b'{"cores":2}'),
    "empty name": Member("", tarfile.REGTYPE, "", 4, b"evil"),
}


def hostile_archive(good: bytes, member: Member, place: str, form: int) -> bytes:
    """Return an archive with one hostile entry in the first, third or last place."""
    files = entries(good)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for index, (name, data) in enumerate([*files, ("", b"")]):
            if index == {"first": 0, "third": 2, "last": len(files)}[place]:
                info = tarfile.TarInfo(member.name)
                info.type, info.linkname, info.size = member.type, member.linkname, member.size
                tar.addfile(info, io.BytesIO(member.data))
            if name and name != member.name:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries_are_refused(good: bytes, tmp_path: Path, name: str, form: int) -> None:
    for place in ("first", "third", "last"):
        (tmp_path / place).mkdir()
        code, _ = refusal(tmp_path / place, hostile_archive(good, HOSTILE[name], place, form))
        assert code in ("archive.header", "archive.unlisted")
    assert not (tmp_path / "escaped").exists()
    assert not Path("/tmp/escaped").exists()


def field(offset: int, text: bytes) -> Callable[[bytearray], None]:
    """Return a change of a header field with its checksum made right again."""

    def change(header: bytearray) -> None:
        header[offset : offset + len(text)] = text
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)

    return change


@pytest.mark.parametrize(
    "change",
    [
        field(100, b"0000755\0"),
        field(100, b"0004755\0"),
        field(108, b"0001750\0"),
        field(116, b"0001750\0"),
        field(124, b"00000000014\0"),
        field(124, b"\x80" + bytes(10) + b"\x0b"),  # GNU's binary sizes
        field(124, b"           "),
        field(124, b"77777777777\0"),
        field(136, b"14000000000\0"),
        field(156, b"5"),
        field(156, b"2"),
        field(156, b"\0"),
        field(157, b"/etc/passwd"),
        field(257, b"ustar  \0"),
        field(265, b"root"),
        field(297, b"root"),
        field(329, b"0000001\0"),
        field(345, b"prefix"),
        field(500, b"hidden"),
        field(0, b"/"),
    ],
)
def test_headers_with_anything_else_are_refused(
    good: bytes, tmp_path: Path, change: Callable[[bytearray], None]
) -> None:
    for number, name in enumerate(("receipt.dsse.json", "manifest.json", "host.json", ROWS_FILE)):
        start = start_of(good, name)
        bad = bytearray(good)
        header = bad[start : start + 512]
        change(header)
        bad[start : start + 512] = header
        (tmp_path / str(number)).mkdir()
        code, file = refusal(tmp_path / str(number), bytes(bad))
        # A smaller size makes a canonical header of another file, whose padding is then full.
        assert code in ("archive.header", "archive.padding", "bundle.too-large")
        assert file == name


def test_a_checksum_in_another_spelling_is_refused(good: bytes, tmp_path: Path) -> None:
    start = start_of(good, "host.json")
    bad = bytearray(good)
    bad[start + 148 : start + 156] = bytes(bad[start + 148 : start + 154]) + b" \0"
    with tarfile.open(fileobj=io.BytesIO(bytes(bad))) as tar:
        assert tar.getmember("host.json").isfile()  # others take it
    assert refusal(tmp_path, bytes(bad)) == ("archive.header", "host.json")


# --- who and what ---------------------------------------------------------------------------------


def test_the_signature_is_checked_before_anything_is_unpacked(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_bytes(good)
    for trust in (explicit([signing_key(2).public]), None):
        with pytest.raises(BundleError) as caught:
            import_archive(tmp_path / "bundle.tar", tmp_path / "out", trust=trust)
        assert caught.value.code == "dsse.unknown-signer"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.tar"]


def test_unsigned_archives_are_imported_only_on_request(tmp_path: Path) -> None:
    bundle = seal(tmp_path / "made", key=None).path
    with open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=None, allow_unsigned=True) as view:
        data = export_archive(view, tmp_path / "a.tar").read_bytes()
    (tmp_path / "x").mkdir()
    assert refusal(tmp_path / "x", data) == ("bundle.unsigned", "receipt.dsse.json")
    admission = import_archive(
        tmp_path / "a.tar", tmp_path / "out", trust=None, allow_unsigned=True
    )
    assert admission.signer is None
    assert files_of(tmp_path / "out") == files_of(bundle)


def test_documents_larger_than_the_cap_are_not_read(tmp_path: Path) -> None:
    data = ustar.header("receipt.dsse.json", MAX_METADATA + 1) + bytes(100)
    assert refusal(tmp_path, data) == ("bundle.too-large", "receipt.dsse.json")


@pytest.mark.parametrize("short", [1, 513, 5_000, 20_000])
def test_a_disk_that_is_full_is_said_to_be_and_leaves_nothing(
    sealed: Path, good: bytes, tmp_path: Path, short: int
) -> None:
    room = len(good) - short  # with little missing, it is the stream's own buffer that is left
    assert room > 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_bundle(sealed, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with pytest.raises(StorageError):
                export_archive(view, tmp_path / "bundle.tar")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_sizes_that_fill_the_disk_are_refused_beforehand(tmp_path: Path) -> None:
    """A signed manifest may list more than fits: say so before writing it."""
    bundle = seal(tmp_path / "made", key=None).path
    manifest = parse_manifest((bundle / "manifest.json").read_bytes())
    rows = [
        replace(manifest.entry(ROWS_FILE), path=f"rows/{number:06d}", size=ustar.MAX_SIZE)
        for number in range(4_000)
    ]
    files = tuple(sorted([*manifest.files, *rows], key=lambda entry: entry.path))
    data = packed([("manifest.json", replace(manifest, files=files).to_bytes())])
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(StorageError) as caught:
        import_archive(tmp_path / "a.tar", tmp_path / "out", trust=None, allow_unsigned=True)
    assert caught.value.code == "storage.full"
    assert not (tmp_path / "out").exists()


def test_what_is_no_archive_is_refused(sealed: Path, tmp_path: Path) -> None:
    for number, data in enumerate(
        [b"", b"x", bytes(10_240), b"PK\x03\x04" + bytes(600), os.urandom(4_096),
         (sealed / "manifest.json").read_bytes()]
    ):  # fmt: skip
        (tmp_path / str(number)).mkdir()
        code, _ = refusal(tmp_path / str(number), data)
        assert code in ("archive.header", "archive.truncated")
    for source in (tmp_path / "none.tar", tmp_path):
        with pytest.raises(BundleError) as caught:
            import_archive(source, tmp_path / "out", trust=TRUST)
        assert caught.value.code == "archive.missing"


def test_an_import_that_is_killed_leaves_nothing_under_the_final_name(
    good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    real, left = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "bundle.tar").write_bytes(good)
    complete = 0
    for steps in range(60):
        left = steps
        target = tmp_path / str(steps)
        try:
            import_archive(tmp_path / "bundle.tar", target, trust=TRUST)
        except Killed:
            if target.exists():  # killed between the rename and the parent's fsync
                assert len(files_of(target)) == len(entries(good))
        else:
            complete += 1
    assert complete > 10


def test_the_identity_is_the_content(good: bytes, sealed: Path) -> None:
    """The digest of the archive is a function of the bundle alone."""
    listed = [(name, (sealed / name).read_bytes()) for name, _ in entries(good)]
    assert hashlib.sha256(packed(listed)).digest() == hashlib.sha256(good).digest()
