"""The settings that a repository has itself, in the file `.reconciler.yaml` at the root of its manifests.

They are input like a manifest: what they say counts only where the settings of the operator say nothing, and gives no
access to anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.documents.locator import locate_document
from reconciler.documents.positions import Positions
from reconciler.documents.reader import parse_documents
from reconciler.documents.schema.validator import get_checker
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import GVC_SCOPED, KINDS, Key
from reconciler.model.rule import Rule, error_rule

SCHEMA = "repository"
MOST_BYTES = 64 * 1024
"""The largest file that is read."""
_RULE, _UNUSED = "repository-file", "repository-setting-unused"

RULES = (
    error_rule(
        _RULE,
        "The file .reconciler.yaml is one small document, whose links have targets that there can be.",
        "It says what the repository is for. A part of it that nobody can read would silently have no effect.",
        "docs/manifests.md#settings-in-the-repository",
    ),
    Rule(
        _UNUSED,
        Severity.NOTICE,
        "A field of .reconciler.yaml says what the settings of the operator say.",
        "The settings count. A repository may be followed for several orgs or GVCs, so this is no fault.",
        "docs/manifests.md#settings-in-the-repository",
    ),
)
"""Rules of the file."""


class RepositorySettings(msgspec.Struct, frozen=True):
    """What a repository says of its manifests: their org, the GVC of those that name none ("": nothing is said).

    ``external`` are the keys, as text, of resources that exist elsewhere.
    """

    org: str = ""
    gvc: str = ""
    external: frozenset[str] = frozenset()


class ReadSettings(msgspec.Struct, frozen=True):
    """The settings of a repository, empty where ``faults`` has an error."""

    settings: RepositorySettings = RepositorySettings()
    faults: tuple[Fault, ...] = ()


def read_repository_settings(raw: bytes, org: str = "", gvc: str = "") -> ReadSettings:
    """The settings in ``raw``, the bytes of the file; ``org`` and ``gvc`` are what counts instead ("": nothing)."""
    if len(raw) > MOST_BYTES:
        return _make_refusal(
            f"the file has more than {MOST_BYTES // 1024} KiB", "it has only `org`, `gvc` and `external`"
        )
    reading = parse_documents(raw)
    if reading.faults:
        return ReadSettings(faults=tuple(reading.faults))
    if len(reading.documents) > 1:
        line = reading.documents[1].line
        return _make_refusal(
            "the file is one document, and this is a second one", "put all fields into the first", line
        )
    if not reading.documents:
        return ReadSettings()
    value = reading.documents[0].value
    places = locate_document(raw, reading.documents[0].index)
    if not isinstance(value, dict):
        line, column = places.value(())
        return _make_refusal("the file is a mapping of `org`, `gvc` and `external`", "", line, column)
    if faults := get_checker(SCHEMA).faults(value, places):
        return ReadSettings(faults=tuple(faults))
    external: set[str] = set()
    for number, text in enumerate(value.get("external", ())):
        key = _parse_target(text)
        if key is None:
            line, column = places.value(("external", number))
            kinds = ", ".join(sorted(map(str, GVC_SCOPED)))
            hint = f"write //gvc/GVC/KIND/NAME for the kinds {kinds}, and //KIND/NAME for the others"
            return _make_refusal(f"{text} is no link to a resource", hint, line, column)
        external.add(str(key))
    unused = tuple(_list_unused(value, {"org": org, "gvc": gvc}, places))
    return ReadSettings(
        RepositorySettings(value.get("org", ""), value.get("gvc", ""), frozenset(external)), faults=unused
    )


def _parse_target(text: str) -> Key | None:
    """The resource to which a link of the form that the schema has leads; None if there is no such kind."""
    parts = text.removeprefix("//").split("/")
    kind = KINDS.get(parts[-2])
    if kind is None or (kind in GVC_SCOPED) != (len(parts) == 4) or (len(parts) == 4 and parts[0] != "gvc"):
        return None
    return Key(kind, parts[1] if len(parts) == 4 else "", parts[-1])


def _list_unused(value: dict[str, str], wanted: dict[str, str], places: Positions) -> Iterator[Fault]:
    """A notice for each field that differs from what counts instead."""
    for name, counted in wanted.items():
        if counted and value.get(name, counted) != counted:
            line, column = places.value((name,))
            message = f"the {'org' if name == 'org' else 'GVC'} is {counted}, as the settings say; this does not count"
            yield Fault(_UNUSED, message, line, column, severity=Severity.NOTICE)


def _make_refusal(message: str, suggestion: str, line: int = 1, column: int = 1) -> ReadSettings:
    return ReadSettings(faults=(Fault(_RULE, message, line, column, suggestion),))
