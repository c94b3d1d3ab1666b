"""Image locks and pins: a digest or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import ImageError
from runner.imagelock import (
    Locks,
    declared_methods,
    host_platform,
    load_lock,
    load_locks,
    parse_lock,
    resolve_image,
)
from runner.model import ImagePin
from tests.unit.manifest_samples import AMD64, ARM64, LOCK, digest, lock_of, locks

LEXICAL = ImagePin(
    name="lexical", image_id=digest("a"), manifest_digest=digest("c"), platform=AMD64
)


def local_lock(image_id: str) -> dict[str, Any]:
    return {
        "schema": "sealbench/images-lock/v1",
        "images": {"lexical": {AMD64: {"image_id": image_id}}},
        "methods": {
            "lexical": {
                "okapi": {"command": ["x"], "config": {}, "cache": False, "tasks": ["retrieval"]}
            }
        },
    }


def test_a_lock_entry_by_its_name() -> None:
    assert resolve_image("lexical", locks(), AMD64) == LEXICAL
    assert resolve_image("lexical", locks(), ARM64).image_id == digest("d")


def test_a_locked_image_is_the_same_by_name_and_by_either_digest() -> None:
    by_id = resolve_image(digest("a"), locks(), AMD64)
    by_manifest = resolve_image(f"registry.example/lexical@{digest('c')}", locks(), AMD64)
    assert by_id == LEXICAL
    assert by_manifest.repository == "registry.example/lexical"
    assert {pin.digest for pin in (LEXICAL, by_id, by_manifest)} == {digest("a")}
    assert all(pin.published for pin in (LEXICAL, by_id, by_manifest))
    assert "okapi" in declared_methods(by_manifest, locks())


def test_images_that_no_lock_knows() -> None:
    by_manifest = resolve_image(f"localhost:5000/a/b__c-d.e@{digest('7')}", locks(), AMD64)
    assert by_manifest == ImagePin(
        name="localhost:5000/a/b__c-d.e",
        manifest_digest=digest("7"),
        repository="localhost:5000/a/b__c-d.e",
        platform=AMD64,
    )
    by_id = resolve_image(digest("7"), locks(), ARM64)
    assert (by_id.image_id, by_id.platform, by_id.published) == (digest("7"), ARM64, False)
    assert declared_methods(by_id, locks()) == {}
    # The digest of another platform's image is nothing that the lock knows on this one.
    assert resolve_image(digest("d"), locks(), AMD64).name.startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("lexcal", "image.unknown", "did you mean 'lexical'"),
        ("nothing-like-it", "image.unknown", "use one of: base, lexical"),
        ("foo:latest", "image.tag", "pin by digest"),
        ("lexical:v1", "image.tag", "pin by digest"),
        ("registry.example/foo", "image.tag", "another image tomorrow"),
        ("registry.example:5000/foo:1.0", "image.tag", "pin by digest"),
        ("sha256:abc", "image.bad-digest", "3 characters after the colon"),
        ("sha256:" + "a" * 63 + "g", "image.bad-digest", "64 of 0-9 a-f"),
        ("sha256:" + "A" * 64, "image.bad-digest", f"write it in lower case: {digest('a')}"),
        ("SHA256:" + "a" * 64, "image.bad-digest", f"write it in lower case: {digest('a')}"),
        ("a" * 64, "image.bad-digest", f"write {digest('a')}"),
        ("foo@sha256:abc", "image.bad-digest", "64 of 0-9 a-f"),
        ("foo@latest", "image.bad-digest", "'latest'"),
        ("foo@sha512:" + "a" * 128, "image.bad-digest", "is no digest"),
        (f"foo:latest@{digest('a')}", "image.bad-repository", f"write foo@{digest('a')}"),
        (f"@{digest('a')}", "image.bad-repository", "no repository name"),
        (f"Foo@{digest('a')}", "image.bad-repository", "no repository name"),
        (f"foo bar@{digest('a')}", "image.bad-repository", "no repository name"),
        (f"https://x/foo@{digest('a')}", "image.bad-repository", "no repository name"),
        (f"a@b@{digest('a')}", "image.bad-digest", "is no digest"),
        (f"{digest('a')}\n", "image.bad-digest", "65 characters"),
        ("", "image.unknown", "no image ''"),
    ],
)
def test_refused_images(text: str, code: str, words: str) -> None:
    with pytest.raises(ImageError) as caught:
        resolve_image(text, locks(), AMD64)
    assert caught.value.code == code
    assert words in f"{caught.value.message} {caught.value.fix}"
    assert caught.value.exit_code == 6


def test_a_recipe_without_a_lock_is_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.imagelock.RECIPES", tmp_path)
    (tmp_path / "overlap").mkdir()
    (tmp_path / "overlap" / "image.toml").touch()
    with pytest.raises(ImageError) as caught:
        resolve_image("overlap", locks(), AMD64)
    assert caught.value.code == "image.unknown"
    assert "`sealbench images lock overlap`" in caught.value.fix
    with pytest.raises(ImageError, match="did you mean 'overlap'"):
        resolve_image("overlp", locks(), AMD64)


def test_another_platform_is_refused_and_the_locked_ones_named() -> None:
    with pytest.raises(ImageError) as caught:
        resolve_image("lexical", locks(), "linux/riscv64")
    assert caught.value.code == "image.platform"
    assert "linux/amd64, linux/arm64" in caught.value.message


def test_without_any_lock_the_fix_is_to_make_one() -> None:
    with pytest.raises(ImageError) as caught:
        resolve_image("lexical", Locks(), AMD64)
    assert "sealbench images lock" in caught.value.fix


def test_a_rebuild_that_came_out_different_wins_and_says_so() -> None:
    both = Locks(published=lock_of(), local=lock_of(local_lock(digest("8"))))
    pin = resolve_image("lexical", both, AMD64)
    assert (pin.image_id, pin.published) == (digest("8"), False)
    assert declared_methods(pin, both)["okapi"].command == ("x",)
    assert resolve_image("lexical", both, ARM64).published
    assert resolve_image(digest("8"), both, AMD64) == pin
    assert declared_methods(resolve_image(digest("a"), both, AMD64), both)["okapi"].config["k1"]


def test_a_rebuild_with_the_published_digest_is_the_published_image() -> None:
    both = Locks(published=lock_of(), local=lock_of(local_lock(digest("a"))))
    assert resolve_image("lexical", both, AMD64).published


def test_locks_are_read_from_files(tmp_path: Path) -> None:
    published, local = tmp_path / "lock.json", tmp_path / "local.json"
    assert load_locks(published, local) == Locks()
    published.write_text(json.dumps(LOCK))
    assert load_locks(published, local) == locks()
    local.write_text(json.dumps(local_lock(digest("8"))))
    assert load_locks(published, local).local.images["lexical"][AMD64].image_id == digest("8")
    assert load_locks(published, None) == locks()
    entry = load_lock(published).images["lexical"][AMD64]
    assert [(layer.name, layer.diff_id, layer.size) for layer in entry.layers] == [
        ("base", digest("1"), 10)
    ]
    assert entry.inputs_sha256 == digest("2")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "image.bad-lock"),
        (b"{", "image.bad-lock"),
        (b"\xff", "image.bad-lock"),
        (b'{"a": 1, "a": 2}', "image.bad-lock"),
        (b"[" * 100_000, "image.bad-lock"),
        (b" " * (5 << 20), "image.bad-lock"),
        (b"{}", "schema.missing-key"),
        (b"[]", "schema.type"),
    ],
)
def test_malformed_locks(raw: bytes, code: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_lock(raw, Path("images.lock.json"))
    assert caught.value.code == code
    assert caught.value.where is not None
    assert caught.value.where.file == "images.lock.json"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("images", "lexical", AMD64, "image_id"), "sha256:abc"),
        (("images", "lexical", AMD64, "image_id"), digest("a") + "\n"),
        (("images", "lexical", AMD64, "extra"), 1),
        (("images", "Lexical"), {AMD64: {"image_id": digest("a")}}),
        (("images", "lexical", "amd64"), {"image_id": digest("a")}),
        (("methods", "lexical", "okapi", "command"), []),
        (("methods", "lexical", "okapi", "tasks"), ["ranking"]),
        (("methods", "lexical", "okapi", "cache"), 1),
    ],
)
def test_locks_that_do_not_fit_the_schema(path: tuple[str, ...], value: object) -> None:
    document = json.loads(json.dumps(LOCK))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ImageError, match=r"schema\."):
        parse_lock(json.dumps(document).encode(), Path("images.lock.json"))


def test_an_unreadable_lock_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        load_locks(tmp_path)  # a folder
    assert caught.value.code == "image.no-lock"


def test_the_host_platform_has_the_form_of_a_lock() -> None:
    system, _, machine = host_platform().partition("/")
    assert system == "linux"
    assert machine
    assert machine != "x86_64"


@given(st.text(max_size=100) | st.from_regex(r"[a-z.:/@-]{0,20}(sha256:[0-9a-f]{60,66})?"))
def test_any_text_is_a_pin_by_content_or_an_error(text: str) -> None:
    try:
        pin = resolve_image(text, locks(), AMD64)
    except ImageError as error:
        assert error.fix
    else:
        assert pin.digest.startswith("sha256:")
        assert len(pin.digest) == 71
