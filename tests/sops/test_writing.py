"""Encrypted files decrypt to what they contained, keep their layout, and a real SOPS decrypts them too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document
from reconciler.printable import is_name
from reconciler.sops.encrypt import (
    EncryptionRules,
    SecretFileError,
    decrypt_file,
    encrypt_secrets,
    reencrypt_secrets,
    rotate_key,
)
from reconciler.sops.keys import Keyring, KeyringError
from tests.support.examples import examples
from tests.support.sops import CASES, FILES, MOMENT, fresh, needs_sops, opened, sops

LATER = "2027-01-02T03:04:05Z"
ODD = """\ufeff# of the shop
kind: secret
name: db   # its name
tags: {since: 2020-01-02, version: 1.10}
type: dictionary
data:   # all of it
  # to hide

  password: correct horse
  "a key": 'it''s'   # beside
  'other': "tab\\t and \\u00fc"
  empty: ""
  none:
  count: 5432   # number
  when: 2020-01-01
  lines: |
    line 1

    line 2

  kept: |+
    one

  folded: >-
    one
    two
  long: "ab
    cd"
  flow: {a: b, c: ["d", 'e']}
  list:
  - one   # first
  - two
  last: ünï 🎉
  # below
# after
---
kind: secret
name: two
type: opaque
data: {payload: "x: y # z"}
...
---
kind: secret
name: three
type: opaque
data:
    payload: last
    # the end"""
MANNERS = [
    EncryptionRules(),
    EncryptionRules("unencrypted_suffix", "_unencrypted"),
    EncryptionRules("encrypted_suffix", "a"),
    EncryptionRules("unencrypted_regex", "^(kind|name|type)$"),
    EncryptionRules("encrypted_regex", "^data$", True),
]


def values(raw: bytes) -> list[dict[str, object]]:
    """The documents of a file."""
    reading = parse_documents(raw)
    assert not reading.faults
    return [document.value for document in reading.documents]


def without_tags(raw: bytes) -> list[dict[str, object]]:
    """The documents of a file but for their tags, whose dates and numbers SOPS writes in its own way."""
    return [{name: value for name, value in each.items() if name != "tags"} for each in values(raw)]


@pytest.mark.parametrize("manner", MANNERS, ids=str)
def test_a_file_comes_back_as_it_was(manner: EncryptionRules) -> None:
    identity, recipient = fresh()
    raw = encrypt_secrets(ODD.encode(), [recipient], manner, MOMENT)
    found = opened(raw, Keyring((identity,)))
    assert [each.value for each in found.values()] == values(ODD.encode())
    assert not any(each.troubles for each in found.values())
    shown = decrypt_file(raw, Keyring((identity,)))
    assert values(shown.text) == values(ODD.encode())
    assert re.findall("#.*", shown.text.decode()) == re.findall("#.*", ODD)


@pytest.mark.parametrize("secret", ["correct horse", "to hide", "beside", "number", "below", "the end", "line 1", "🎉"])
def test_nothing_that_is_to_be_hidden_can_be_read(secret: str) -> None:
    assert secret not in encrypt_secrets(ODD.encode(), [fresh()[1]], EncryptionRules(), MOMENT).decode()


def test_lines_that_are_not_encrypted_stay_as_they_are() -> None:
    raw = encrypt_secrets(ODD.encode(), [fresh()[1]], EncryptionRules(), MOMENT).decode()
    for line in ("name: db   # its name", "tags: {since: 2020-01-02, version: 1.10}", "data:   # all of it", "# after"):
        assert f"\n{line}\n" in raw


@needs_sops
@pytest.mark.parametrize("manner", MANNERS, ids=str)
def test_a_real_sops_opens_what_is_written(manner: EncryptionRules, tmp_path: Path) -> None:
    identity, recipient = fresh()
    (tmp_path / "file.yaml").write_bytes(encrypt_secrets(ODD.encode(), [recipient, fresh()[1]], manner, MOMENT))
    decrypted = sops(tmp_path, identity, "decrypt", "file.yaml")
    assert decrypted.returncode == 0, decrypted.stderr.decode()
    assert without_tags(decrypted.stdout) == without_tags(ODD.encode())
    assert "AES" not in decrypted.stdout.decode()


@needs_sops
def test_a_real_sops_finds_what_was_changed(tmp_path: Path) -> None:
    identity, recipient = fresh()
    raw = encrypt_secrets(ODD.encode(), [recipient], EncryptionRules(), MOMENT)
    (tmp_path / "file.yaml").write_bytes(raw.replace(b"name: two", b"name: tow"))
    assert b"MAC mismatch" in sops(tmp_path, identity, "decrypt", "file.yaml").stderr


@needs_sops
def test_files_of_a_real_sops_can_be_edited_and_rotated(tmp_path: Path) -> None:
    identity, recipient = fresh()
    (tmp_path / "plain.yaml").write_text((CASES / "plain.yaml").read_text())
    raw = sops(tmp_path, identity, "encrypt", "--age", recipient, "--encrypted-regex", "^data$", "plain.yaml").stdout
    shown = decrypt_file(raw, Keyring((identity,)))
    edited = reencrypt_secrets(shown, shown.text.replace(b"correct horse", b"battery"), LATER)
    other, its_recipient = fresh()
    (tmp_path / "file.yaml").write_bytes(rotate_key(edited, Keyring((identity,)), [its_recipient], [recipient], LATER))
    decrypted = sops(tmp_path, other, "decrypt", "file.yaml")
    assert b"password: battery\n" in decrypted.stdout
    assert sops(tmp_path, identity, "decrypt", "file.yaml").returncode != 0


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=20)
KEYS = TEXTS.filter(is_name)
SCALARS = st.one_of(
    TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@given(st.dictionaries(KEYS, TREES, max_size=4), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_any_values_survive(data: dict[str, object], whole: bool) -> None:
    identity, recipient = IDENTITY
    source = render_document({"kind": "secret", "name": "db", "data": {**data, "one": "x"}}).encode()
    before = values(source)
    raw = encrypt_secrets(source, [recipient], MANNERS[whole], MOMENT)
    (found,) = opened(raw, Keyring((identity,))).values()
    assert (found.value, found.troubles) == (before[0], ())
    shown = decrypt_file(raw, Keyring((identity,)))
    assert values(shown.text) == before
    assert values(decrypt_file(reencrypt_secrets(shown, shown.text, LATER), Keyring((identity,))).text) == before


IDENTITY = fresh()


def test_an_edit_changes_only_what_was_changed() -> None:
    identity, recipient = fresh()
    raw = encrypt_secrets(ODD.encode(), [recipient], EncryptionRules(), MOMENT)
    shown = decrypt_file(raw, Keyring((identity,)))
    again = reencrypt_secrets(shown, shown.text.replace(b"correct horse", b"battery"), LATER)
    pairs = zip(raw.decode().splitlines(), again.decode().splitlines(), strict=True)
    changed = [old.split(":")[0].strip() for old, new in pairs if old != new]
    assert changed == ["password"] + ["lastmodified", "mac"] * 3


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.stem not in ("for-ssh", "two-groups") and "comment" not in path.stem],
    ids=lambda path: path.stem,
)
def test_files_of_sops_are_decrypted_and_encrypted_again(path: Path) -> None:
    identity = (CASES / "identity.txt").read_text()
    shown = decrypt_file(path.read_bytes(), Keyring((identity,)))
    assert b"ENC[" not in shown.text
    again = reencrypt_secrets(shown, shown.text, LATER)
    assert decrypt_file(again, Keyring((identity,))).text == shown.text


def test_a_rotated_file_has_another_key_and_other_readers() -> None:
    (one, its), (other, others) = fresh(), fresh()
    raw = encrypt_secrets(ODD.encode(), [its], EncryptionRules(), MOMENT)
    rotated = rotate_key(raw, Keyring((one,)), [others], [its], LATER)
    assert values(decrypt_file(rotated, Keyring((other,))).text) == values(ODD.encode())
    with pytest.raises(SecretFileError, match="not encrypted for the identity"):
        decrypt_file(rotated, Keyring((one,)))
    assert decrypt_file(raw, Keyring((one,))).key != decrypt_file(rotated, Keyring((other,))).key


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no document"),
        ("a: [", "line 1"),
        ("{kind: secret, data: {a: b}}", "braces"),
        ("- a", "without braces"),
        ("kind: secret\nname: a", "nothing to encrypt"),
        ("kind: &a secret\ndata: {x: *a}", "aliases"),
        ("data: {a: b}\nsops: {}", "already"),
    ],
)
def test_a_text_that_cannot_be_encrypted_is_refused(text: str, why: str) -> None:
    with pytest.raises(SecretFileError, match=why):
        encrypt_secrets(text.encode(), [fresh()[1]], EncryptionRules(), MOMENT)


def test_a_file_that_cannot_be_decrypted_or_rotated_is_refused() -> None:
    identity, recipient = fresh()
    raw = encrypt_secrets(b"kind: secret\ndata: {a: b}\n", [recipient], EncryptionRules(), MOMENT)
    ring = Keyring((identity,))
    for broken, why in (
        (raw.replace(b"kind: secret", b"kind: secrets"), "MAC"),
        (b"kind: secret", "not encrypted"),
        (raw + b"---\n" + encrypt_secrets(b"data: {a: b}\n", [recipient], EncryptionRules(), MOMENT), "separately"),
        (raw.replace(b"ENC[", b"ENC(", 1), "data.a"),
    ):
        with pytest.raises(SecretFileError, match=why):
            decrypt_file(broken, ring)
    with pytest.raises(SecretFileError, match="not encrypted for"):
        rotate_key(raw, ring, [], [fresh()[1]], LATER)
    with pytest.raises(SecretFileError, match="cannot be decrypted"):
        rotate_key(raw, ring, [], [recipient], LATER)
    with pytest.raises(KeyringError, match="which must stay secret"):
        rotate_key(raw, ring, [identity], [], LATER)
