"""Secrets in JSON that a real SOPS encrypted are read as those in YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.documents.json.recognition import is_json_manifest
from reconciler.errors import EncryptionError
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.sops.encrypt import decrypt_file
from reconciler.sops.keys import Keyring
from tests.support.sops import fresh, needs_sops, sops

SECRET = {
    "kind": "secret",
    "name": "db",
    "tags": {"version": "1.10"},
    "type": "dictionary",
    "data": {"user": "shop", "password": "correct horse \u00e9 \U0001f600", "empty": ""},
}


def encrypted(folder: Path, identity: str, recipient: str, *options: str) -> bytes:
    """``SECRET``, encrypted by a real SOPS."""
    (folder / "plain.json").write_text(json.dumps(SECRET))
    done = sops(folder, identity, "encrypt", "--age", recipient, *options, "plain.json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def context(*identities: str, required: bool = True) -> ManifestContext:
    """A context whose keyring has ``identities``."""
    return ManifestContext("acme", secret_key=b"k" * 32, keyring=Keyring(identities, required=required))


@needs_sops
@pytest.mark.parametrize("options", [["--encrypted-regex", "^data$"], []], ids=["the data", "every value"])
def test_a_secret_in_json_is_decrypted(options: list[str], tmp_path: Path) -> None:
    identity, recipient = fresh()
    raw = encrypted(tmp_path, identity, recipient, *options)
    assert is_json_manifest(raw)
    decoded = decode_manifests(raw, context(identity), is_json=True)
    assert [fault.rule for fault in decoded.faults] == []
    [found] = decoded.manifests
    [plain] = decode_manifests(json.dumps(SECRET).encode(), context()).manifests
    assert (found.body, found.secret_data) == (plain.body, plain.secret_data)


@needs_sops
def test_a_changed_secret_in_json_is_found_at_its_place(tmp_path: Path) -> None:
    identity, recipient = fresh()
    raw = encrypted(tmp_path, identity, recipient, "--encrypted-regex", "^data$")
    changed = raw.replace(b'"shop"', b'"shop"').replace(b'"db"', b'"db2"')
    [fault] = decode_manifests(changed, context(identity), is_json=True).faults
    assert fault.rule == "secret-mac-broken"
    assert changed.split(b"\n")[fault.line - 1][fault.column - 1 :].startswith(b'"mac": "ENC[')


@needs_sops
def test_a_locked_secret_in_json_shows_nothing(tmp_path: Path) -> None:
    identity, recipient = fresh()
    decoded = decode_manifests(encrypted(tmp_path, identity, recipient), context(), is_json=True)
    assert decoded.manifests == ()
    assert [each.key for each in decoded.broken] == ["secret/"]
    assert "correct horse" not in repr(decoded)


@needs_sops
def test_an_encrypted_file_in_json_is_changed_with_sops(tmp_path: Path) -> None:
    identity, recipient = fresh()
    raw = encrypted(tmp_path, identity, recipient, "--encrypted-regex", "^data$")
    with pytest.raises(EncryptionError, match="it is JSON: change it with sops"):
        decrypt_file(raw, Keyring((identity,)))
