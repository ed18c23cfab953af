"""Reads units of systemd: sections of `Key=value`, with comments and continued lines, and the line of each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.convert.budget import MOST_VALUES
from reconciler.documents.recognition import DROP_IN, UNIT_SUFFIXES
from reconciler.model.finding import Fault, Finding, Pointer, Severity

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that a manifest cannot have, even escaped."""
MOST_ENTRIES = 10_000
"""The most entries of a unit."""


class UnitEntry(NamedTuple):
    """A key of a section with its value, in the file at ``path``.

    ``at`` leads to its line: the section, the key, and which one of these.
    """

    section: str
    key: str
    value: str
    at: Pointer
    path: str = ""


class Unit(NamedTuple):
    """A unit of a file; ``suffix`` is its type, such as `.container`."""

    path: str
    name: str
    suffix: str
    entries: list[UnitEntry]
    faults: list[Fault]

    def of(self, section: str, key: str) -> list[UnitEntry]:
        """The entries of a key. An empty one clears those before it."""
        entries: list[UnitEntry] = []
        for entry in self.entries:
            if (entry.section, entry.key) == (section, key):
                entries.append(entry)
                if not entry.value:
                    entries.clear()
        return entries

    def last(self, section: str, key: str) -> UnitEntry | None:
        """The entry of a key that counts where only one does."""
        entries = self.of(section, key)
        return entries[-1] if entries else None


class UnitLocator:
    """The places of the entries of one unit, as ``Locator`` has those of YAML."""

    def __init__(self, raw: bytes) -> None:
        self._lines = {entry.at: line for entry, line in _list_entries(_decode_text(raw), [])}

    def of(self, _index: int) -> UnitLocator:
        """The places in a document: a unit is one."""
        return self

    def key(self, at: Pointer) -> tuple[int, int]:
        """The line and column of the entry that ``at`` leads to; of a part of a value, that of its entry."""
        return self._lines.get(at[:3], 1), 1

    value = key


def drop_in_directories(path: str) -> list[str]:
    """The directories with drop-ins of the unit at ``path``, those first that win; empty for other files."""
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    if suffix not in UNIT_SUFFIXES:
        return []
    words = stem.split("-")
    above = ["-".join([*words[:count], ""]) for count in range(len(words) - 1, 0, -1)]
    template = [f"{stem.partition('@')[0]}@"] if "@" in stem[:-1] else []
    names = [f"{text}{suffix}.d" for text in (stem, *template, *above)]
    return [posixpath.join(folder, text) for text in (*names, f"{suffix[1:]}.d")]


def with_drop_ins(unit: Unit, drop_ins: Mapping[str, Sequence[Unit]]) -> Unit:
    """``unit`` with the entries of its drop-ins behind its own, in the order of their names, as systemd has them.

    ``drop_ins`` are those of all units by directory.
    """
    by_name: dict[str, Unit] = {}
    for directory in drop_in_directories(unit.path):
        for drop_in in drop_ins.get(directory, ()):
            by_name.setdefault(drop_in.name, drop_in)
    more = [entry for _, unit in sorted(by_name.items()) for entry in unit.entries]
    return unit._replace(entries=[*unit.entries, *more])


def read_unit(path: str, raw: bytes) -> Unit:
    """The unit in a file; what is no entry is a fault. No content makes it raise."""
    faults: list[Fault] = []
    try:
        raw.decode()
    except UnicodeDecodeError:
        faults.append(Fault("encoding", "a unit is text in UTF-8", 0, 0, "save it as UTF-8"))
    entries = [entry._replace(path=path) for entry, _ in _list_entries(_decode_text(raw), faults)]
    stem, suffix = posixpath.splitext(posixpath.basename(path))
    return Unit(path, stem, suffix, entries, faults)


def read_units(contents: Mapping[str, bytes]) -> tuple[list[Unit], list[Finding]]:
    """The units of files with the entries of their drop-ins, and findings for what is no entry or of no unit."""
    read = [read_unit(path, raw) for path, raw in contents.items()]
    findings = [Finding.at(unit.path, fault) for unit in read for fault in unit.faults]
    units = [unit for unit in read if unit.suffix != DROP_IN]
    drop_ins = {unit.path: unit for unit in read if unit.suffix == DROP_IN}
    used = {directory for unit in units for directory in drop_in_directories(unit.path)}
    for path in drop_ins:
        if posixpath.dirname(path) not in used:
            message = "there is no unit of this drop-in among the files; it is left out"
            findings.append(Finding(path, 1, 1, "convert-missing", Severity.WARNING, message, "name the unit too"))
    return [*_merge_drop_ins(units, drop_ins, findings)] if drop_ins else units, findings


def _merge_drop_ins(units: Sequence[Unit], drop_ins: Mapping[str, Unit], findings: list[Finding]) -> Iterator[Unit]:
    """``units`` with their drop-ins, of which one may be that of all units: a few lines stand for many."""
    count = 0
    by_directory: dict[str, list[Unit]] = {}
    for path, drop_in in drop_ins.items():
        by_directory.setdefault(posixpath.dirname(path), []).append(drop_in)
    for unit in units:
        whole = with_drop_ins(unit, by_directory)
        count += len(whole.entries) - len(unit.entries)
        if count > MOST_VALUES:
            words = f"with the drop-ins of this unit, the files have more than {MOST_VALUES:,} entries"
            findings.append(
                Finding(unit.path, 1, 1, "convert-too-large", Severity.ERROR, words, "convert fewer at once")
            )
            return
        yield whole


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _list_entries(text: str, faults: list[Fault]) -> Iterator[tuple[UnitEntry, int]]:
    """Each entry with its line."""
    section, counts, count = "", dict[tuple[str, str], int](), 0
    for line, words in _logical_lines(text):
        if words.startswith("[") and words.endswith("]"):
            section = words[1:-1]
            continue
        key, sign, value = words.partition("=")
        if _CONTROL.search(words):
            faults.append(Fault("control-character", "this line has a control character", line, 1, "remove it"))
            continue
        if not sign or not section or not key.strip():
            faults.append(Fault("convert-malformed", "a line of a unit is [Section] or Key=value", line, 1))
            continue
        count += 1
        if count > MOST_ENTRIES:
            faults.append(Fault("convert-too-large", f"a unit has at most {MOST_ENTRIES:,} entries", line, 1))
            return
        number = counts.get((section, key.strip()), 0)
        counts[section, key.strip()] = number + 1
        yield UnitEntry(section, key.strip(), value.strip(), (section, key.strip(), number)), line


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers: without comments and empty ones, continued ones as one."""
    begin, parts = 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if words.startswith(("#", ";")) or (not words and not parts):
            continue
        begin = begin if parts else number
        parts.append(words.removesuffix("\\").rstrip())
        if not words.endswith("\\"):
            yield begin, " ".join(parts)
            parts = []
    if parts:
        yield begin, " ".join(parts)
