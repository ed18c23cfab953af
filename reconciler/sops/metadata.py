"""The mapping ``sops`` of an encrypted document: its recipients, which values are encrypted, and the MAC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from reconciler.errors import EncryptionError

FIELD = "sops"
VERSION = "3.11.0"
"""The release of SOPS whose format is written."""

DEFAULT_SUFFIX = "_unencrypted"
RULES = (
    "unencrypted_suffix",
    "encrypted_suffix",
    "unencrypted_regex",
    "encrypted_regex",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
)
_OTHER_KEYS = {
    "kms": "AWS KMS",
    "gcp_kms": "GCP KMS",
    "hckms": "Huawei KMS",
    "azure_kv": "Azure Key Vault",
    "hc_vault": "Vault",
    "pgp": "PGP",
}
_FRACTION = re.compile(r"(:[0-9]{2})\.[0-9]+")
_LONGEST_PATTERN = 1_000
CACHED_PATTERNS = 1_000
"""The number of cached patterns, and of cached names for each."""

MOST_KEYS = 100
"""Recipients of a document; each costs an attempt to decrypt."""

Path = tuple[str, ...]
Covers = Callable[[Path], bool]


class MetadataError(EncryptionError):
    """The mapping is not as SOPS writes it; the message names the field and the fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Wrapped(msgspec.Struct, frozen=True):
    """The data key, encrypted for one recipient (``age1…`` or an SSH public key) in age's armor."""

    recipient: str
    enc: str


class SopsMetadata(msgspec.Struct, frozen=True):
    """The mapping ``sops``.

    ``rule`` and ``pattern`` select the encrypted values; ``mac`` is encrypted and bound to ``lastmodified``.
    ``others`` names the kinds of keys besides age; ``groups`` is the number of key groups.
    """

    keys: tuple[Wrapped, ...]
    lastmodified: str
    mac: str
    rule: str = "unencrypted_suffix"
    pattern: str = DEFAULT_SUFFIX
    mac_only_encrypted: bool = False
    others: tuple[str, ...] = ()
    groups: int = 1

    @property
    def moment(self) -> str:
        """``lastmodified`` in the form that the MAC is bound to: without fractions of a second."""
        return _FRACTION.sub(r"\1", self.lastmodified)

    def by_comments(self) -> bool:
        """Whether comments select the encrypted values; the form of a value then shows whether it is encrypted."""
        return self.rule.endswith("comment_regex")

    def covers(self) -> Covers:
        """A function: whether values below a path are encrypted. Raises MetadataError for an invalid pattern."""
        return make_path_matcher(self.rule, self.pattern)

    def to_mapping(self) -> dict[str, Any]:
        """The mapping as SOPS writes it."""
        body: dict[str, Any] = {
            "age": [{"recipient": key.recipient, "enc": key.enc} for key in self.keys],
            "lastmodified": self.lastmodified,
            "mac": self.mac,
            self.rule: self.pattern,
        }
        if self.mac_only_encrypted:
            body["mac_only_encrypted"] = True
        return {FIELD: {**body, "version": VERSION}}


def metadata_of(value: Any) -> SopsMetadata:
    """The mapping ``sops`` as a struct. Raises MetadataError if it is not as SOPS writes it."""
    if not isinstance(value, dict):
        raise MetadataError("", "`sops` is reserved for the mapping that SOPS writes")
    for field in ("lastmodified", "mac"):
        if not isinstance(value.get(field), str):
            raise MetadataError(field, f"`sops` has no text `{field}`, so the values cannot be verified")
    rules = [name for name in RULES if value.get(name)]
    if len(rules) > 1:
        raise MetadataError(rules[1], f"`{rules[0]}` and `{rules[1]}` cannot both select what is encrypted")
    rule, pattern = (rules[0], value[rules[0]]) if rules else ("unencrypted_suffix", DEFAULT_SUFFIX)
    if not isinstance(pattern, str):
        raise MetadataError(rule, f"`{rule}` is not a text")
    group, groups = _select_first_group(value)
    return SopsMetadata(
        _parse_wrapped_keys(group.get("age")),
        value["lastmodified"],
        value["mac"],
        rule,
        pattern,
        value.get("mac_only_encrypted") is True,
        tuple(words for field, words in _OTHER_KEYS.items() if group.get(field)),
        groups,
    )


def _select_first_group(value: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The first group of keys, and the number of groups."""
    groups = value.get("key_groups")
    if not groups:
        return value, 1
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise MetadataError("key_groups", "`key_groups` is not a list of mappings")
    return groups[0], len(groups)


def _parse_wrapped_keys(listed: Any) -> tuple[Wrapped, ...]:
    try:
        wrappeds = msgspec.convert(listed or (), tuple[Wrapped, ...])
    except msgspec.ValidationError:
        raise MetadataError("age", "`age` is not a list of `recipient` and `enc`") from None
    if len(wrappeds) > MOST_KEYS:
        raise MetadataError("age", f"`age` has more than {MOST_KEYS} recipients")
    return wrappeds


@lru_cache(CACHED_PATTERNS)
def make_path_matcher(rule: str, pattern: str) -> Covers:
    """A function: whether values below a path are encrypted. Raises MetadataError for an invalid pattern."""
    encrypted = rule.startswith("encrypted")
    if rule.endswith("_suffix"):
        return lambda path: any(name.endswith(pattern) for name in path) is encrypted
    matches = _make_name_matcher(rule, pattern)
    return lambda path: any(map(matches, path)) is encrypted


def _make_name_matcher(rule: str, pattern: str) -> Callable[[str], bool]:
    """A function: whether a regular expression of Go's dialect occurs in a name. Its time is linear."""
    import jsonschema_rs

    try:
        if len(pattern) > _LONGEST_PATTERN:
            raise ValueError
        check = jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        raise MetadataError(rule, f"`{rule}` is not a regular expression") from None
    return lru_cache(CACHED_PATTERNS)(check.is_valid)


def path_of(pointer: Sequence[str | int]) -> Path:
    """The keys of a pointer without its indices: the path that SOPS binds a value to."""
    return tuple(step for step in pointer if isinstance(step, str))
