"""Secrets: their data comes from files and standard input, so that no value is in the list of processes."""

from __future__ import annotations

import sys
from typing import Any

from reconciler.errors import UsageError
from reconciler.input_files import STDIN
from reconciler.platform_cli.commands.creating import build_envelope
from reconciler.platform_cli.commands.resources import create_resource, patch_with
from reconciler.platform_cli.documents import read_hidden, read_object, read_text
from reconciler.platform_cli.option_values import parse_pairs
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.session import Session

_BYTES = "for bytes: platform secret create-opaque --encoding base64"


def reveal(session: Session, kind: str, ref: str) -> None:
    """Print a secret with its data."""
    answer = session.client.get(f"{session.path(kind, ref)}/-reveal")
    session.output.value(answer["data"] if session.output.is_text else answer)


def set_value(session: Session, kind: str, ref: str, key: str, value: str | None, file: str | None) -> None:
    """Set one value of a secret; a secret that does not exist becomes a dictionary."""
    if value not in (None, STDIN):
        raise UsageError("a value in a command line is seen by others: write - for standard input, or --file FILE")
    if value and file:
        raise UsageError("write either - for standard input, or --file FILE")
    text = read_text(file, _BYTES) if file else _typed_value()
    if not text:
        raise UsageError("the value is empty; to remove it: platform secret unset")
    try:
        patch_with(session, kind, ref, {"data": {key: text}})
    except ApiError as error:
        if not error.is_missing:
            raise
        name = session.find(ref, kind).name
        create_resource(session, kind, {**build_envelope({"name": name}), "type": "dictionary", "data": {key: text}})


def unset_value(session: Session, kind: str, ref: str, key: str) -> None:
    """Remove one value of a secret."""
    patch_with(session, kind, ref, {"data": {key: None}})


def _typed_value() -> str:
    """Standard input without its last line break; on a terminal one line, which is not shown."""
    return read_hidden("Value") if sys.stdin.isatty() else read_text(STDIN, _BYTES).removesuffix("\n")


def create_opaque(session: Session, kind: str, file: str, encoding: str, **common: Any) -> None:
    """Create a secret of type opaque."""
    _create_secret(session, kind, "opaque", {"payload": read_text(file), "encoding": encoding}, common)


def create_dictionary(session: Session, kind: str, entry: tuple[str, ...], **common: Any) -> None:
    """Create a secret of type dictionary."""
    data = {
        key: read_text(value[1:]) if value.startswith("@") else value
        for key, value in parse_pairs(entry, "--entry").items()
    }
    _create_secret(session, kind, "dictionary", data, common)


def create_userpass(
    session: Session, kind: str, username: str, password_file: str, encoding: str, **common: Any
) -> None:
    """Create a secret of type userpass."""
    password = read_text(password_file).removesuffix("\n")
    _create_secret(
        session, kind, "userpass", {"username": username, "password": password, "encoding": encoding}, common
    )


def create_tls(session: Session, kind: str, cert: str, key: str, chain: str | None, **common: Any) -> None:
    """Create a secret of type tls."""
    data = {"cert": read_text(cert), "key": read_text(key)} | ({"chain": read_text(chain)} if chain else {})
    _create_secret(session, kind, "tls", data, common)


def create_keypair(
    session: Session, kind: str, secret_key: str, public_key: str | None, passphrase_file: str | None, **common: Any
) -> None:
    """Create a secret of type keypair."""
    data = {"secretKey": read_text(secret_key)} | ({"publicKey": read_text(public_key)} if public_key else {})
    if passphrase_file:
        data["passphrase"] = read_text(passphrase_file).removesuffix("\n")
    _create_secret(session, kind, "keypair", data, common)


def create_from_file(session: Session, kind: str, type_: str, file: str, **common: Any) -> None:
    """Create a secret whose data is the object in a file."""
    _create_secret(session, kind, type_, read_object(file), common)


def create_from_text(session: Session, kind: str, type_: str, file: str, **common: Any) -> None:
    """Create a secret whose data is the text in a file."""
    _create_secret(session, kind, type_, read_text(file), common)


def _create_secret(session: Session, kind: str, type_: str, content: Any, common: dict[str, Any]) -> None:
    if not content:
        raise UsageError("the value is empty")
    create_resource(session, kind, {**build_envelope(common), "type": type_, "data": content})
