"""Files that a real SOPS wrote are decrypted, and every later change of them is found."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from reconciler.documents.reader import parse_documents
from reconciler.sops.result import KEY_WRONG, LOCKED, MAC_BROKEN, METADATA
from tests.support.sops import CASES, FILES, keyring, opened

OURS = [path for path in FILES if path.stem not in ("for-ssh", "two-groups")]
SEALED = re.compile(rb"ENC\[AES256_GCM,[^\]]*type:(?:str|int|float|bool|time)\]")


def named(path: Path) -> str:
    """``data-only``."""
    return path.stem


def plain_of(path: Path) -> list[dict[str, object]]:
    """What was encrypted, as SOPS understands it: it reads numbers and dates where we read text."""
    source = "two" if path.stem.endswith("documents") else "plain"
    values = [document.value for document in parse_documents((CASES / f"{source}.yaml").read_bytes()).documents]
    for value in values:
        if "tags" in value:
            value["tags"] |= {
                "version": "1.1",
                "since": "2020-01-02T00:00:00Z",
                "seen": "2020-01-02T03:04:05.12Z",
                "hex": "31",
            }
            value["tags"].pop("large")
    return values


@pytest.mark.parametrize("path", OURS, ids=named)
def test_files_of_sops_are_decrypted(path: Path) -> None:
    found = opened(path.read_bytes(), keyring("second", "identity"))
    assert not any(each.troubles or each.locked for each in found.values())
    values = [found[index].value for index in sorted(found)]
    for value in values:
        assert "tags" not in value or float(value["tags"].pop("large")) == 1e20
    assert values == plain_of(path)


def test_an_ssh_key_opens_what_is_encrypted_for_it() -> None:
    raw = (CASES / "files" / "for-ssh.yaml").read_bytes()
    assert opened(raw, keyring("ssh"))[0].value["data"]["password"] == "correct horse"
    assert opened(raw, keyring("identity"))[0].locked


@pytest.mark.parametrize("path", FILES, ids=named)
@pytest.mark.parametrize("required", [True, False])
def test_without_the_identity_nothing_is_opened(path: Path, required: bool) -> None:
    found = opened(path.read_bytes(), keyring(required=required))
    for decrypted_document in found.values():
        assert decrypted_document.locked
        assert [trouble.rule for trouble in decrypted_document.troubles] == [KEY_WRONG if required else LOCKED]
        assert not any(
            "correct horse" in str(value) for value in (decrypted_document.value, decrypted_document.troubles)
        )


def test_the_message_for_a_wrong_identity_names_the_recipients() -> None:
    (trouble,) = opened((CASES / "files" / "data-only.yaml").read_bytes(), keyring("second", required=True))[0].troubles
    assert trouble.rule == KEY_WRONG
    assert "age1" in trouble.message


def test_split_keys_are_known_for_what_they_are() -> None:
    (trouble,) = opened((CASES / "files" / "two-groups.yaml").read_bytes(), keyring("identity", "second"))[0].troubles
    assert "several key groups" in trouble.message


@pytest.mark.parametrize("path", OURS, ids=named)
def test_whatever_is_changed_is_found(path: Path) -> None:
    raw = path.read_bytes()
    ring = keyring("identity")
    values = list(SEALED.finditer(raw.partition(b"\nsops:")[0]))
    for one, two in combinations(values[:6], 2):
        swapped = raw[: one.start()] + two[0] + raw[one.end() : two.start()] + one[0] + raw[two.end() :]
        assert rules(swapped, "identity") == {MAC_BROKEN}, (one[0], two[0])
    for value in values[:3]:
        assert rules(raw[: value.start()] + b"in-the-open" + raw[value.end() :], "identity") == {MAC_BROKEN}
        assert rules(raw[: value.start()] + b'""' + raw[value.end() :], "identity") == {MAC_BROKEN}
    mac = re.search(rb"mac: (ENC\[.*\])", raw)
    assert mac is not None
    assert rules(raw.replace(mac[1], b"ENC[]"), "identity") == {MAC_BROKEN}
    assert rules(re.sub(rb'lastmodified: "....', b'lastmodified: "1999', raw), "identity") == {MAC_BROKEN}
    assert not any(decrypted_document.troubles for decrypted_document in opened(raw, ring).values())


def rules(raw: bytes, identity: str) -> set[str]:
    """Ids of what is wrong in a file."""
    return {trouble.rule for each in opened(raw, keyring(identity)).values() for trouble in each.troubles}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"name: db", b"name: dc"),
        (b"kind: secret\n", b""),
        (b"kind: secret\n", b"kind: secret\ngvc: x\n"),
        (b"1.1\n", b"1.2\n"),
        (b"2020-01-02T00:00:00Z", b"2020-01-03T00:00:00Z"),
    ],
)
def test_plain_values_are_under_the_mac_too(old: bytes, new: bytes) -> None:
    raw = (CASES / "files" / "data-only.yaml").read_bytes()
    assert old in raw
    assert rules(raw.replace(old, new, 1), "identity") == {MAC_BROKEN}


def test_with_a_mac_over_encrypted_values_only_plain_ones_may_change() -> None:
    raw = (CASES / "files" / "mac-of-encrypted.yaml").read_bytes()
    assert rules(raw.replace(b"name: db", b"name: dc"), "identity") == set()


def test_the_mac_is_over_all_documents_of_a_file() -> None:
    raw = (CASES / "files" / "several-documents.yaml").read_bytes()
    first, second = raw.split(b"\n---\n", 1)
    assert rules(first + b"\n", "identity") == rules(second, "identity") == {MAC_BROKEN}
    assert rules(second + b"---\n" + first + b"\n", "identity") == {MAC_BROKEN}
    own = b"---\nkind: org\nname: acme\n"
    assert rules(raw + own, "identity") == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb"(?s)sops:.*", b"sops: 1\n"),
        (rb"lastmodified:.*", b"modified: x"),
        (rb"mac: .*", b"mac: 1"),
        (rb"(encrypted_regex: ).*", rb"\1'('"),
        (rb"(encrypted_regex: .*)", rb"\1\n    encrypted_suffix: x"),
        (rb"(encrypted_regex: .*)", rb"\1\n    key_groups: x"),
        (rb"recipient: ", b"for: "),
    ],
)
def test_faulty_metadata_is_reported(old: bytes, new: bytes) -> None:
    raw = (CASES / "files" / "data-only.yaml").read_bytes()
    changed = re.sub(old, new, raw, count=1)
    assert changed != raw
    assert rules(changed, "identity") == {METADATA}


def test_aliases_in_an_encrypted_document_are_reported() -> None:
    raw = (CASES / "files" / "data-only.yaml").read_bytes()
    assert rules(raw.replace(b"name: db", b"name: &a db\ndescription2: *a"), "identity") == {METADATA}
