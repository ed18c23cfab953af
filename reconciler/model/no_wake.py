"""The tag `reconciler/no-wake`: requests that start and keep no replica of a workload which scales to zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

NO_WAKE = "reconciler/no-wake"
MOST_ENTRIES = 20
LONGEST_ENTRY = 200


class NoWake(msgspec.Struct, frozen=True):
    """Requests that do not wake: of these ``paths``, of paths that begin with ``prefixes``, of these user ``agents``.

    A query is no part of the path. An agent is a part of the header User-Agent, in any case.
    """

    paths: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.prefixes or self.agents)


class _Tagged(msgspec.Struct):
    tags: dict[str, Any] = {}


def parse_no_wake(text: str) -> NoWake:
    """``/healthz, /internal/*, UptimeRobot`` → an exact path, a prefix and a user agent; invalid entries are omitted.

    ``no_wake_faults`` lists those.
    """
    entries = [entry for entry in _split_entries(text) if not _describe_fault(entry)]
    paths = [entry for entry in entries if entry.startswith("/")]
    return NoWake(
        tuple(path for path in paths if not path.endswith("*")),
        tuple(path[:-1] for path in paths if path.endswith("*")),
        tuple(entry for entry in entries if not entry.startswith("/")),
    )


def read_no_wake(body: bytes) -> NoWake:
    """The tag in the body of a workload (normalized JSON, which escapes no slash).

    Raises msgspec.ValidationError for another body that has the name of the tag.
    """
    if NO_WAKE.encode() not in body:
        return NoWake()  # a body is decoded once on its way to a process
    text = msgspec.json.decode(body, type=_Tagged).tags.get(NO_WAKE)
    return NoWake() if text is None else parse_no_wake(str(text))


def no_wake_faults(text: str) -> Iterator[tuple[str, str]]:
    """Each invalid entry of the tag with the reason."""
    entries = text.split(",")
    for entry in entries[:MOST_ENTRIES]:
        if fault := _describe_fault(entry.strip()):
            yield entry.strip(), fault
    if len(entries) > MOST_ENTRIES:
        yield entries[MOST_ENTRIES].strip(), f"there are {len(entries)} entries, and {MOST_ENTRIES} are allowed"


def _split_entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",")[:MOST_ENTRIES]]


def _describe_fault(entry: str) -> str:
    """Why ``entry`` is invalid; "" if it is not."""
    if not entry:
        return "an entry is empty"
    if len(entry) > LONGEST_ENTRY:
        return f"an entry has at most {LONGEST_ENTRY} characters"
    if not (entry.isascii() and entry.isprintable()):
        return "an entry has only printable ASCII characters"
    if entry == "/*":
        return "no request at all would start a replica"
    if "*" in (entry[:-1] if entry.startswith("/") else entry):
        return "`*` is only allowed at the end of a path"
    if entry.startswith("/") and (" " in entry or "?" in entry or "#" in entry):
        return "a path has no blank, query or fragment"
    return ""
