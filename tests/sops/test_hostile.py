"""Decryption of any file neither crashes nor takes long, and reveals nothing that was encrypted."""

from __future__ import annotations

import json
import random
import tracemalloc
from functools import partial

import pytest

from reconciler.documents.writer import render_document
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.sops.cipher import (
    DecryptionFailed,
    additional_data,
    decrypt_value,
    encrypt_value,
    parse_encrypted_value,
)
from reconciler.sops.decrypt import EncryptedGroup, Revealed, compute_mac
from reconciler.sops.encrypt import SecretFileError, decrypt_file
from reconciler.sops.metadata import MetadataError, make_path_matcher, metadata_of
from tests.support.pace import in_time
from tests.support.sops import CASES, FILES, keyring
from tests.support.sops import opened as documents

DIALECTS = [
    ManifestContext("acme", secret_key=b"k", keyring=keyring("identity", required=required), secrets="any")
    for required in (True, False)
]
WORDS = (
    "\n|  |- |: |sops:|ENC[|<<: {a: b}\n|&a |*a|---\n|data:\n|kind: secret\n|!!str |\"|'|{|}|~|age: 1\n|mac: x\n|"
    "lastmodified: x\n|mac: é\n"
)
PIECES = [*WORDS.encode().split(b"|"), b"|\n", b"\xff", b"\0"]


@pytest.mark.parametrize("seed", range(40))
def test_no_change_of_a_file_crashes_or_reveals_a_secret(seed: int) -> None:
    chance = random.Random(seed)
    for path in FILES:
        raw = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(raw))
            end = at + chance.choice((0, 0, 1, 5, 80, 400))
            raw[at:end] = chance.choice([*PIECES, bytes(raw[at - 60 : at]), b""])
        for dialect in DIALECTS:
            decoded = decode_manifests(bytes(raw), dialect)
            assert not any("correct horse" in str(fault) for fault in decoded.faults)
            assert not any(b"correct horse" in manifest.body for manifest in decoded.manifests)


@pytest.mark.parametrize("text", ["9" * 30, "-" + "9" * 30, "9" * 5000, "x", ""])
def test_numbers_beyond_64_bits_are_no_values(text: str) -> None:
    key = bytes(32)
    sealed = parse_encrypted_value(encrypt_value(f"{text} ", key, b"a:", kind="int"))
    assert sealed is not None
    with pytest.raises(DecryptionFailed):
        decrypt_value(sealed, key, b"a:")


@pytest.mark.parametrize(("text", "kind"), [("nan", "float"), ("1e999", "float"), ("yes", "bool"), ("x", "list")])
def test_odd_types_are_no_values(text: str, kind: str) -> None:
    sealed = parse_encrypted_value(encrypt_value(text, bytes(32), b"a:", kind=kind))
    assert sealed is not None
    with pytest.raises(DecryptionFailed):
        decrypt_value(sealed, bytes(32), b"a:")


SHORT = "ENC[AES256_GCM,data:QQ==,iv:QQ==,tag:QQ==,type:str]"


@pytest.mark.parametrize("text", ["ENC[]", "ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]", f"x{SHORT}", f"{SHORT} "])
def test_a_document_that_only_resembles_an_encrypted_one_is_plain(text: str) -> None:
    assert parse_encrypted_value(text) is None


def test_an_iv_or_tag_of_another_length_opens_nothing() -> None:
    for text in (
        "ENC[AES256_GCM,data:QQ==,iv:QQ==,tag:QQ==,type:str]",
        f"ENC[AES256_GCM,data:QQ==,iv:{'QUFB' * 90},tag:QQ==,type:str]",
    ):
        sealed = parse_encrypted_value(text)
        assert sealed is not None
        with pytest.raises(DecryptionFailed):
            decrypt_value(sealed, bytes(32), b"a:")


def test_patterns_take_time_that_grows_with_the_name_only() -> None:
    covers, long = make_path_matcher("encrypted_regex", "^(a+)+$"), ("a" * 20_000 + "!",)
    assert in_time(lambda: covers(long), 1.0)[0] is False
    for pattern in ("(" * 500, "(a{1000}){1000}", "a" * 2000, "(?=x)", r"\1"):
        in_time(partial(refused, pattern), 1.0)


def refused(pattern: str) -> None:
    with pytest.raises(MetadataError):
        make_path_matcher("encrypted_regex", pattern)


def test_a_control_character_is_only_taken_in_data() -> None:
    for field, rules in (("description", {"secret-mac-broken"}), ("data", set())):
        raw = resealed(field)
        found = {trouble.rule for each in documents(raw, keyring("identity")).values() for trouble in each.troubles}
        assert found == rules, field


def resealed(field: str, mac: str = "") -> bytes:
    """A secret whose ``field`` holds DEL, encrypted as SOPS would do it, under the right ``mac`` or another one."""
    from reconciler.documents.reader import parse_documents
    from reconciler.sops.keys import new_key, wrap_key
    from reconciler.sops.layout import layout_of
    from reconciler.sops.metadata import SopsMetadata

    recipient = (CASES / "identity.txt").read_text().split("public key: ")[1].split("\n")[0]
    key, moment = new_key(), "2026-01-02T03:04:05Z"
    value = {
        "kind": "secret",
        "name": "db",
        "type": "docker",
        field: encrypt_value("a\x7fb", key, additional_data([field])),
    }
    metadata = SopsMetadata(wrap_key(key, [recipient]), moment, "", "encrypted_regex", f"^{field}$")
    (document,) = parse_documents(render_document(value).encode()).documents
    group = EncryptedGroup(metadata, [(document, layout_of(render_document(value).encode(), {0})[0])])
    mac = mac or compute_mac(group, Revealed({(0, (field,)): "a\x7fb"}, {}))
    sealed = SopsMetadata(
        metadata.keys, moment, encrypt_value(mac, key, moment.encode()), metadata.rule, metadata.pattern
    )
    return render_document({**value, **sealed.to_mapping()}).encode()


@pytest.mark.parametrize("count", [100, 101])
def test_recipients_are_bounded(count: int) -> None:
    value = {"mac": "", "lastmodified": "", "age": [{"recipient": "x", "enc": "x"}] * count}
    if count > 100:
        with pytest.raises(MetadataError):
            metadata_of(value)
    else:
        assert len(metadata_of(value).keys) == count


def test_a_mac_that_holds_something_else_is_none() -> None:
    raw = resealed("data", mac="é" * 128)
    assert {trouble.rule for trouble in documents(raw, keyring("identity"))[0].troubles} == {"secret-mac-broken"}


DEEP = 20_000
NESTED = {
    "brackets": b"[" * DEEP + b"]" * DEEP,
    "braces": b"{a: " * DEEP + b"}" * DEEP,
    "dashes": b"- " * DEEP,
    "open brackets": b"[" * DEEP,
    "brackets in a value": b"kind: secret\nname: a\ndata: " + b"[" * DEEP + b"]" * DEEP,
}


@pytest.mark.parametrize("body", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("head", [b'sops: {mac: "", lastmodified: ""}\n---\n', b"sops: {}\n"])
def test_a_file_that_names_sops_is_read_within_the_limits_again(head: bytes, body: bytes) -> None:
    decoded, _ = in_time(lambda: decode_manifests(head + body, DIALECTS[0]), 1.0)
    tracemalloc.start()
    try:
        assert decode_manifests(head + body, DIALECTS[0]) == decoded
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert {"too-deep", "syntax"} & {fault.rule for fault in decoded.faults}
    assert peak < 10_000_000


def test_escapes_of_json_in_two_halves_are_whole_to_every_reader_of_an_encrypted_file() -> None:
    value = {
        "kind": "secret",
        "name": "x",
        "type": "opaque",
        "data": {"payload": "YQ=="},
        "description": "\U0001f600",
        "sops": {"lastmodified": "2026-01-02T03:04:05Z", "mac": ""},
    }
    raw = json.dumps(value).encode()
    assert b"\\ud83d" in raw
    found = {fault.rule for fault in decode_manifests(raw, DIALECTS[0]).faults}
    assert found == {
        fault.rule for fault in decode_manifests(json.dumps(value, ensure_ascii=False).encode(), DIALECTS[0]).faults
    }
    with pytest.raises(SecretFileError):
        decrypt_file(raw, keyring("identity"))
