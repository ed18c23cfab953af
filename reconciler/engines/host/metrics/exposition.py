"""Reads what a container exposes: Prometheus' text format 0.0.4, line by line, from a server that may be hostile.

Each line is checked against the grammar and written again, so that no text of a container can break the common page,
add labels of the platform, or hide behind another name. A faulty line refuses the whole scrape, as in Prometheus. The
parser of prometheus_client builds objects for whole pages (some GB for 10 MiB), accepts what Prometheus refuses, and
would be a dependency; lines need 2 microseconds each, and as many bytes as the text has.
"""

from __future__ import annotations

import re
from math import isinf

from reconciler.engines.target_metrics import GAP, REPORT_PREFIX, SUFFIXES, Family
from reconciler.errors import ReconcilerError

MAX_LINE = 65_536
"""Bytes of one line."""
MAX_SAMPLES = 100_000
MAX_FAMILIES = 10_000
"""The most samples and metrics of one container: each costs memory in this daemon and in Prometheus."""

TARGET_LABELS = ("org", "gvc", "location", "provider", "region", "cluster_id", "workload", "replica", "container")
"""The labels that the platform adds. One of a container's own with such a name gets the prefix ``exported_``."""

_TYPES = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
_FLOAT_LABELS = {"histogram": "le", "summary": "quantile"}

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_NUMBER = r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)"
_VALUE = rf"(?:{_NUMBER}|[nN][aA][nN])"
_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_LABELS = r'\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\}'
_SAMPLE = re.compile(
    rf"[ \t]*+({_NAME})(?:[ \t]*+{_LABELS}[ \t]*+|[ \t]++)({_VALUE})(?:[ \t]++(-?[0-9]{{1,15}}))?[ \t]*+"
)
_LABEL = re.compile(rf"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+{_QUOTED}[ \t]*+(,|$)[ \t]*+")
_COMMENT = re.compile(rf"[ \t]*+#[ \t]++(HELP|TYPE)[ \t]++({_NAME})(?:[ \t]++(.*))?")
_FLOAT = re.compile(_VALUE)
_ESCAPE = re.compile(r"\\(.?)")
_IN_HELP, _IN_VALUES = "\\n", '\\n"'
"""What may follow a backslash."""


class ScrapeError(ReconcilerError):
    """The metrics of a container cannot be used; the message never contains text of the container."""


class _Group:
    """A metric while it is read."""

    def __init__(self) -> None:
        self.type = ""
        self.help = ""
        self.lines: list[str] = []

    def set_help(self, text: str) -> None:
        self.help = self.help or text

    def set_type(self, kind: str) -> None:
        self.type = kind if kind in _TYPES else "untyped"

    def finish(self) -> Family:
        return Family("".join(self.lines).encode(), self.type or "untyped", self.help)


class ExpositionParser:
    """Takes the text in parts of any size. ``samples`` counts what it contains so far."""

    def __init__(self) -> None:
        self.samples = 0
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, _Group] = {}
        self._rest = b""
        self._line = 0

    def feed(self, part: bytes) -> None:
        """Read the whole lines up to the end of ``part``. Raises ScrapeError."""
        complete, newline, rest = part.rpartition(b"\n")
        if not newline:
            self._rest += part
        else:
            complete, self._rest = self._rest + complete, rest
        if len(self._rest) > MAX_LINE:
            raise ScrapeError(f"line {self._line + 1} is longer than {MAX_LINE >> 10} KiB")
        if newline:
            self._read_lines(complete)

    def finish(self) -> dict[str, Family]:
        """The metrics by name, without those of the platform and those without samples. Raises ScrapeError."""
        if self._rest.strip(b" \t"):
            raise ScrapeError("the last line has no end: the text is incomplete")
        return {name: group.finish() for name, group in self._groups.items() if group.lines}

    def _read_lines(self, block: bytes) -> None:
        try:
            text = block.decode()
        except UnicodeDecodeError:
            raise ScrapeError(f"the text after line {self._line} is not UTF-8") from None
        if GAP in text:
            raise ScrapeError(f"the text after line {self._line} contains a NUL")
        for line in text.split("\n"):
            self._line += 1
            if (match := _SAMPLE.fullmatch(line)) is not None:
                self._add_sample(match)
            elif (comment := _COMMENT.fullmatch(line)) is not None:
                self._add_comment(comment[1], comment[2], comment[3] or "")
            elif (rest := line.strip(" \t")) and not rest.startswith("#"):
                raise self._fault("is no sample of the text format")

    def _add_sample(self, match: re.Match[str]) -> None:
        name, labels, value, time = match.groups()
        if isinf(float(value)) and "n" not in value.lower():
            raise self._fault("has a value that is too large")
        if name.startswith(REPORT_PREFIX):
            return
        self.samples += 1
        if self.samples > MAX_SAMPLES:
            raise ScrapeError(f"there are more than {MAX_SAMPLES} samples")
        group = self._group_of.get(name) or self._find_group(name)
        own = self._labels(labels.strip(" \t"), group.type) if labels else ""
        group.lines.append(f"{name}{{{GAP}{own and ','}{own}}} {value}{f' {time}' if time else ''}\n")

    def _add_comment(self, word: str, name: str, text: str) -> None:
        """Take the type or help of a metric; the first one counts."""
        if name.startswith(REPORT_PREFIX):
            return
        group = self._open_group(name)
        if word == "HELP":
            group.set_help(_escape_backslashes(text.rstrip(" \t"), _IN_HELP))
        elif not group.type and not group.lines:
            group.set_type(text.strip(" \t").lower())
            self._group_of.clear()

    def _find_group(self, name: str) -> _Group:
        """The metric that the sample ``name`` belongs to."""
        candidate = self._groups.get(name)
        for suffix in ("_bucket", "_sum", "_count") if candidate is None or not candidate.type else ():
            base = self._groups.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if base is not None and suffix in SUFFIXES.get(base.type, ()):
                candidate = base
        group = self._group_of[name] = candidate or self._open_group(name)
        return group

    def _open_group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= MAX_FAMILIES:
                raise ScrapeError(f"there are more than {MAX_FAMILIES} metrics")
            group = self._groups[name] = _Group()
        return group

    def _labels(self, text: str, kind: str) -> str:
        """The container's own labels, written anew. Raises ScrapeError."""
        pairs: dict[str, str] = {}
        at = 0
        while at < len(text):
            match = _LABEL.match(text, at)
            if match is None:
                raise self._fault("has labels that are not of the text format")
            name, value, at = match[1], match[2], match.end()
            if name in pairs or name.startswith("__"):
                raise self._fault("repeats a label" if name in pairs else "has a label that begins with __")
            if name == _FLOAT_LABELS.get(kind) and not _FLOAT.fullmatch(value):
                raise self._fault(f"has a label {name} that is no number")
            pairs[name] = _escape_backslashes(value, _IN_VALUES)
        for name in TARGET_LABELS:
            if name in pairs:
                pairs[_make_free_name(f"exported_{name}", pairs)] = pairs.pop(name)
        return ",".join(f'{name}="{value}"' for name, value in pairs.items())

    def _fault(self, message: str) -> ScrapeError:
        return ScrapeError(f"line {self._line} {message}")


def _make_free_name(name: str, taken: dict[str, str]) -> str:
    """``name``, with the prefix once more while it is taken."""
    return _make_free_name(f"exported_{name}", taken) if name in taken else name


def _escape_backslashes(text: str, escapes: str) -> str:
    """``text`` with a second backslash before each escape that is not ``escapes``: Prometheus reads both alike."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda it: it[0] if it[1] and it[1] in escapes else f"\\\\{it[1]}", text)
