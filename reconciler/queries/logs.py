"""The logs of workloads: the newest lines that a query selects, and then new ones."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reconciler.engines.plugin import make_all_readers
from reconciler.engines.reading import (
    ALWAYS,
    LineFilter,
    LogBlock,
    LogLine,
    LogSearch,
    LogSelection,
    LogSpan,
    LogStream,
    StreamFilter,
    SupportsLogs,
    select_lines,
)
from reconciler.errors import EngineError, NotFoundError, ReconcilerError
from reconciler.logql.label_filters import LabelMatcher
from reconciler.logql.parser import parse_log_query
from reconciler.logql.query import LogQuery
from reconciler.model.key import Key, Kind
from reconciler.model.target import parse_target
from reconciler.queries.existence import check_gvc, check_key, did_you_mean
from reconciler.queries.targets import resolve_resource
from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.records.store import Records

_NAMED = 10
"""The most workloads, replicas, or locations, named when the query matches no stream."""
_LAST_LINES = 10
"""The newest lines of which the last one is looked for that is not blank."""


class LogOptions(NamedTuple):
    """The search; times in seconds since the epoch. ``workloads`` are the keys of those that are read, None: all."""

    query: LogQuery
    since: float | None = None
    until: float | None = None
    limit: int = 100
    location: str | None = None
    replica: str | None = None
    workloads: frozenset[str] | None = None

    @property
    def selection(self) -> LogQuery:
        """The query, of one replica only if that is wanted."""
        if self.replica is None:
            return self.query
        matchers = (*self.query.matchers, LabelMatcher("replica", "=", self.replica))
        return msgspec.structs.replace(self.query, matchers=matchers)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a stream with ``labels`` is read. Of others, not even the expressions of the query see a label."""
        if self.workloads is not None and _workload_key(labels) not in self.workloads:
            return False
        return self.selection.selects(labels)


class Bounds(NamedTuple):
    """Limits on the expressions of a query: each method returns its argument with a limit."""

    streams: Callable[[StreamFilter], StreamFilter]
    lines: Callable[[LineFilter], LineFilter]


_NAMING = ({"gvc"}, {"workload"}, {"gvc", "workload"})
"""The labels of queries that name a GVC or a workload."""


def parse_query(text: str, gvc: str = "") -> LogQuery:
    """The query in ``text``: streams in braces with filters, or a target, which stands for all its streams.

    A workload without a GVC is that of ``gvc``, else every workload of the name. Raises QueryError, and ValueError if
    ``text`` is neither.
    """
    if text.lstrip().startswith("{"):
        return parse_log_query(text)
    hint = """write workload/GVC/NAME, gvc/NAME, or streams in braces: '{gvc="shop"} |= "error"'"""
    try:
        target = parse_target(text, gvc)
    except ValueError as error:
        why = str(error).partition("; ")[2]
        raise ValueError(f"{text!r} names no streams; {why if 'did you mean' in why else hint}") from None
    if target.kind == Kind.GVC:
        return LogQuery((LabelMatcher("gvc", "=", target.name),))
    if target.kind not in ("", Kind.WORKLOAD):
        raise ValueError(f"{text!r} names no streams; {hint}")
    within = [LabelMatcher("gvc", "=", target.gvc)] if target.gvc else []
    return LogQuery((*within, LabelMatcher("workload", "=", target.name)))


def explain_forbidden(query: LogQuery, workloads: frozenset[str] | None) -> str:
    """Why a ``query`` names a workload that is none of ``workloads`` (None: all), or a GVC that has none; "" if not.

    Whether what it names exists makes no difference.
    """
    named = {matcher.label: matcher.value for matcher in query.matchers if matcher.op == "="}
    if workloads is None or "gvc" not in named:
        return ""
    if "workload" in named:
        key = _workload_key(named)
        return "" if key in workloads else f"no permission `readLogs` on {key}"
    if any(Key.parse(workload).gvc == named["gvc"] for workload in workloads):
        return ""
    return f"no permission `readLogs` on a workload of {Kind.GVC}/{named['gvc']}"


def _workload_key(labels: Mapping[str, str]) -> str:
    return f"{Kind.WORKLOAD}/{labels['gvc']}/{labels['workload']}"


def list_log_streams(settings: Settings, most: int) -> list[LogStream]:
    """The streams at all locations that answer, at most ``most``."""
    streams: list[LogStream] = []
    for reader in make_all_readers(settings):
        if isinstance(reader, SupportsLogs):
            with suppress(EngineError, OSError):  # others are complete without it
                streams.extend(islice(reader.log_streams(), most - len(streams)))
    return streams


def select_streams(streams: Iterable[LogStream], workloads: frozenset[str] | None) -> list[dict[str, str]]:
    """The labels of those ``streams`` that are of ``workloads`` (None: of all)."""
    found = map(LogStream.labels, streams)
    return [labels for labels in found if workloads is None or _workload_key(labels) in workloads]


class LogReader:
    """Reads the lines that ``options`` select, with limits ``bounds`` on its expressions, at all locations.

    ``newest`` returns existing lines, oldest first, ``more`` the lines since the last call. Raises PermissionError, and
    EngineError if no location answers; one that does not while others do is left out, and is in ``faults``.
    """

    def __init__(self, settings: Settings, options: LogOptions, bounds: Bounds) -> None:
        self._settings = settings
        self._options = options

        def lines_of(block: LogBlock, stream: Mapping[str, str]) -> Sequence[bytes]:
            return select_lines(options.query, block, stream)

        self._selection = LogSelection(bounds.streams(options.selects), bounds.lines(lines_of))
        self._searches: dict[tuple[str, str], LogSearch] = {}
        self._faults: dict[str, str] = {}
        self._begin_searches()

    @property
    def faults(self) -> Mapping[str, str]:
        """Why the logs of a location are left out, by location."""
        return self._faults

    def _begin_searches(self) -> None:
        errors: list[EngineError] = []
        for reader in self._wanted_readers():
            try:
                self._searches[reader.engine, reader.location] = self._search(reader)
            except EngineError as error:
                errors.append(error)
                self._faults[reader.location] = str(error)
        if errors and not self._searches:
            raise errors[0]

    def newest(self) -> list[LogLine]:
        """The newest lines, at most as many as the limit."""
        since, until = self._options.since, self._options.until
        span = ALWAYS if since is None else LogSpan(since=int(since * 1000))
        span = span if until is None else span._replace(until=int(until * 1000))
        # Of lines of the same millisecond, those of the first location come first.
        backward = [search.backward(span) for _, search in sorted(self._searches.items(), reverse=True)]
        merged = heapq.merge(*backward, key=lambda line: -line.ms) if len(backward) > 1 else chain(*backward)
        lines = list(islice(merged, self._options.limit))
        lines.reverse()
        return lines

    def more(self) -> list[LogLine]:
        """New lines; blocks only while it reads."""
        lines = [line for _, search in sorted(self._searches.items()) for line in search.more()]
        for reader in self._wanted_readers():
            binding = (reader.engine, reader.location)
            if binding not in self._searches:
                self._searches[binding] = self._search(reader)
                lines += reversed(list(self._searches[binding].backward()))
        return sorted(lines, key=lambda line: line.ms) if len(self._searches) > 1 else lines

    def _search(self, reader: SupportsLogs) -> LogSearch:
        return reader.search_logs(self._selection)

    def _wanted_readers(self) -> list[SupportsLogs]:
        location = self._options.location
        readers = (reader for reader in self._readers() if location in (None, reader.location))
        return [reader for reader in readers if reader.location not in self._faults]

    def _readers(self) -> list[SupportsLogs]:
        return [reader for reader in make_all_readers(self._settings) if isinstance(reader, SupportsLogs)]

    def _streams(self) -> Iterator[LogStream]:
        """Every stream at every location."""
        readers = (reader for reader in self._readers() if reader.location not in self._faults)
        return (stream for reader in readers for stream in reader.log_streams())

    def nothing_selected(self, open_records: Callable[[], Records]) -> str:
        """Why no stream is selected, "" if one is.

        Raises NotFoundError if a location, GVC or workload that the query names does not exist.
        """
        if any(
            self._selection.streams(stream.labels())
            for reader in self._wanted_readers()
            for stream in reader.log_streams()
        ):
            return ""
        self._check_location()
        self._check_target(open_records)
        return self._others()

    def _check_location(self) -> None:
        location = self._options.location
        names = self._settings.locations.keys() | {reader.location for reader in self._readers()}
        if location is not None and location not in names:
            raise NotFoundError(f"there is no location {location!r}{did_you_mean(location, names)}")

    def _check_target(self, open_records: Callable[[], Records]) -> None:
        query = self._options.query
        named = {matcher.label: matcher.value for matcher in query.matchers if matcher.op == "="}
        if len(named) < len(query.matchers) or named.keys() not in _NAMING:
            return
        if any(query.selects(stream.labels()) for stream in self._streams()):
            return  # deleted workloads can have logs
        with closing(open_records()) as records:
            try:
                self._check_named(records, named)
            except NotFoundError as error:
                end = "" if str(error).endswith("?") else ";"
                raise NotFoundError(f"{error}{end} {self._others()}") from None

    def _check_named(self, records: Records, named: Mapping[str, str]) -> None:
        """Raise NotFoundError if the GVC or workload does not exist."""
        if "workload" not in named:
            check_gvc(records, named["gvc"])
        elif "gvc" in named:
            check_key(records, Key(Kind.WORKLOAD, named["gvc"], named["workload"]))
        elif not records.find_keys(named["workload"], Kind.WORKLOAD):
            resolve_resource(self._settings, records, parse_target(f"{Kind.WORKLOAD}/{named['workload']}"))

    def _others(self) -> str:
        """The existing logs, for the message when the query selects none."""
        location = self._options.location
        there = list(self._streams())
        if not there:
            return "there are no logs on this host"
        if location is not None and location not in {stream.location for stream in there}:
            names, begin = {stream.location for stream in there}, f"there are no logs of {location} on this host"
        elif replicas := {stream.replica for stream in there if self._options.query.selects(stream.labels())}:
            names, begin = replicas, f"the query selects no logs of {self._options.replica}"
        else:
            names, begin = {f"{stream.gvc}/{stream.workload}" for stream in there}, "the query selects no logs"
        return f"{begin}; there are logs of {', '.join(sorted(names)[:_NAMED])}{', …' if len(names) > _NAMED else ''}"


def find_last_line(settings: Settings, key: Key) -> str:
    """The newest line that is not blank in the log of the workload ``key``; "" if there is none, or none to read."""
    from reconciler.logql.limits import limit_time, prepare_limits

    prepare_limits()
    options = LogOptions(parse_query(str(key)), limit=_LAST_LINES)
    try:
        lines = LogReader(settings, options, Bounds(limit_time, limit_time)).newest()
    except (ReconcilerError, PermissionError):
        return ""
    texts = (line.text.decode(errors="replace").strip() for line in reversed(lines))
    return next(filter(None, texts), "")
