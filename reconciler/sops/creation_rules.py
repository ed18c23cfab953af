"""Rules of a ``.sops.yaml``: the recipients of new files, and the values to encrypt."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.documents.reader import parse_documents
from reconciler.sops.encrypt import EncryptionRules, SecretFileError
from reconciler.sops.metadata import RULES, MetadataError, make_path_matcher

FILE = ".sops.yaml"


class Creation(msgspec.Struct, frozen=True):
    """The recipients and the encrypted values that a rule sets."""

    recipients: tuple[str, ...]
    manner: EncryptionRules = EncryptionRules()


def creation_of(raw: bytes, path: str) -> Creation | None:
    """The first rule for ``path`` (relative to the file's directory), None if there is none.

    Raises SecretFileError if the file is invalid, or the rule needs a feature that only sops has.
    """
    reading = parse_documents(raw)
    if reading.faults or len(reading.documents) != 1 or not isinstance(reading.documents[0].value, dict):
        raise SecretFileError("it is not one mapping with creation_rules")
    rules = reading.documents[0].value.get("creation_rules") or []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise SecretFileError("its creation_rules are not a list of mappings")
    for rule in rules:
        if _matches_path(rule.get("path_regex"), path):
            return Creation(_list_rule_recipients(rule), _get_encryption_rules(rule))
    return None


def _matches_path(pattern: Any, path: str) -> bool:
    if pattern in (None, ""):
        return True
    try:
        return make_path_matcher("encrypted_regex", str(pattern))((path,))
    except MetadataError:
        raise SecretFileError("a path_regex in it is not a regular expression") from None


def _list_rule_recipients(rule: dict[str, Any]) -> tuple[str, ...]:
    groups = rule.get("key_groups") or [rule]
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        raise SecretFileError("its rule for this file has several key groups, which only sops writes")
    age = groups[0].get("age") or ()
    listed = age.split(",") if isinstance(age, str) else age
    if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
        raise SecretFileError("`age` in its rule for this file is neither a text nor a list of texts")
    recipients = tuple(text.strip() for text in listed if text.strip())
    if not recipients:
        raise SecretFileError("its rule for this file names no age recipient")
    return recipients


def _get_encryption_rules(rule: dict[str, Any]) -> EncryptionRules:
    """The encrypted values; by default only those in ``data``, so that kinds and names stay readable."""
    named = [name for name in RULES if rule.get(name)]
    if len(named) > 1 or any(name.endswith("comment_regex") for name in named):
        raise SecretFileError(f"in its rule for this file, `{named[-1]}` is a feature that only sops has")
    only = rule.get("mac_only_encrypted") is True
    return EncryptionRules(named[0], str(rule[named[0]]), only) if named else EncryptionRules(mac_only_encrypted=only)
