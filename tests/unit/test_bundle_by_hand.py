"""docs/verify-by-hand.sh: ten lines of other people's tools agree with our verifier."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.bundle import dsse
from runner.bundle.documents import canonical_object
from runner.canonical import canonical_bytes
from tests.unit.bundle_files import KEY, PROTOCOL_ID, allowed_signers, seal, signing_key

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "verify-by-hand.sh"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seal(tmp_path_factory.mktemp("sealed")).path


@pytest.fixture
def bundle(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed, tmp_path / "bundle"))


def by_hand(bundle: Path, *, key: bytes | None = None, protocol_id: str = PROTOCOL_ID) -> bool:
    pem = bundle.parent / "key.pem"
    pem.write_bytes(KEY.public.pem.encode() if key is None else key)
    done = subprocess.run(
        ["sh", str(SCRIPT), str(bundle), str(pem), protocol_id],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ("every file is listed" in done.stdout) is (done.returncode == 0), done.stderr
    assert done.stderr.count("FAILED: ") == (done.returncode != 0), done.stderr
    return done.returncode == 0


def test_it_is_ten_lines_long() -> None:
    lines = SCRIPT.read_text().splitlines()
    assert len([line for line in lines if not line.startswith(("#", "set "))]) == 10


def test_a_good_bundle_passes(bundle: Path) -> None:
    assert by_hand(bundle)


def test_another_key_or_protocol_does_not(bundle: Path) -> None:
    assert not by_hand(bundle, key=signing_key(2).public.pem.encode())
    assert not by_hand(bundle, protocol_id="sha256:" + "99" * 32)


def test_what_does_not_hold_is_named(bundle: Path) -> None:
    pem, other = bundle.parent / "key.pem", "sha256:" + "99" * 32
    pem.write_text(KEY.public.pem)
    command = ["sh", str(SCRIPT), str(bundle), str(pem), other]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert f"FAILED: it was signed for another protocol than {other}" in done.stderr


def test_nothing_to_verify_is_no_success(bundle: Path, tmp_path: Path) -> None:
    assert not by_hand(bundle.parent / "none")
    assert not by_hand(bundle, key=b"no key")
    for arguments in ([], [str(bundle)], [str(bundle), str(tmp_path / "none.pem"), PROTOCOL_ID]):
        command = ["sh", str(SCRIPT), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode != 0
        assert done.stderr.count("FAILED: ") == 1


def flip(name: str) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        data = bytearray((bundle / name).read_bytes())
        data[len(data) // 2] ^= 1
        (bundle / name).write_bytes(data)

    return change


def add(bundle: Path) -> None:
    (bundle / "rows" / "extra").write_bytes(b"")


def link(bundle: Path) -> None:
    (bundle / "rows" / "extra").symlink_to("bm25")


def fifo(bundle: Path) -> None:
    os.mkfifo(bundle / "fifo")


def empty_folder(bundle: Path) -> None:
    (bundle / "rows" / "empty").mkdir()


def remove(bundle: Path) -> None:
    (bundle / "host.json").unlink()


def two_signatures(bundle: Path) -> None:
    path = bundle / "receipt.dsse.json"
    envelope = canonical_object(path.read_bytes(), file="x")
    path.write_bytes(canonical_bytes(envelope | {"signatures": envelope["signatures"] * 2}))


def empty_statement(bundle: Path) -> None:
    (bundle / "receipt.dsse.json").write_bytes(dsse.sign(b'{"subject":[]}', KEY))


@pytest.mark.parametrize(
    "spoil",
    [
        flip("receipt.dsse.json"), flip("manifest.json"), flip("host.json"),
        flip("rows/bm25/tiny/part-00000.jsonl"), add, link, fifo, empty_folder, remove,
        two_signatures, empty_statement,
    ],
)  # fmt: skip
def test_a_spoiled_bundle_does_not(bundle: Path, spoil: Callable[[Path], None]) -> None:
    spoil(bundle)
    assert not by_hand(bundle)


def test_ssh_keygen_verifies_the_signature_beside_the_bundle(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text(allowed_signers("me@example.org"))
    manifest = (sealed / "manifest.json").read_bytes()
    for message, good in ((manifest, True), (manifest + b" ", False)):
        done = subprocess.run(
            ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "allowed"), "-I", "me@example.org",
             "-n", "sealbench", "-s", str(sealed.parent / "bundle.sigs" / "manifest.json.sig")],
            input=message, check=False, capture_output=True,
        )  # fmt: skip
        assert (done.returncode == 0) is good
