"""The commands that read a signed bundle hold it to the keys that are trusted, and to no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner.cli import main
from runner.errors import EXIT_OK, BundleError
from runner.keys import SigningKey
from tests.sealed import KEY, sandbox


def test_a_page_needs_no_protocol_but_a_key_that_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    strange = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([8]) * 32)).public
    pages, codes = [], []
    for name, key in (("own", KEY.public), ("strange", strange)):
        (tmp_path / f"{name}.pem").write_text(key.pem)
        pages.append(tmp_path / f"{name}.html")
        options = ["--key", str(tmp_path / f"{name}.pem"), "--out", str(pages[-1])]
        codes.append(main(["report", str(box.out), *options]))
    assert codes == [EXIT_OK, BundleError.exit_code]
    assert [page.exists() for page in pages] == [True, False]
    assert "dsse.unknown-signer" in capsys.readouterr().err
