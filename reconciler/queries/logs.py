"""The logs of workloads on this host: the newest lines that a query selects, and then new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reconciler.engines.host.logs.blocks import Block
from reconciler.engines.host.logs.search import Choose, Line, Pick, Search, Span, select
from reconciler.engines.host.logs.segments import roots, streams
from reconciler.errors import NotFoundError
from reconciler.logql.label_filters import LabelMatcher
from reconciler.logql.parser import parse
from reconciler.logql.query import LogQuery
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_gvc, check_key, did_you_mean
from reconciler.settings import Settings

if TYPE_CHECKING:
    from reconciler.records.store import Records

_NAMED = 10
"""The most workloads, replicas, or locations, named when the query matches no stream."""


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

    streams: Callable[[Choose], Choose]
    lines: Callable[[Pick], Pick]


def parse_query(text: str) -> LogQuery:
    """The query in ``text``: streams in braces with filters, or a key, which stands for all its streams.

    Raises QueryError, and ValueError if ``text`` is neither.
    """
    if text.lstrip().startswith("{"):
        return parse(text)
    try:
        key = Key.parse(text)
    except ValueError:
        key = None
    if key is None or key.kind not in (Kind.WORKLOAD, Kind.GVC):
        hint = """write workload/GVC/NAME, gvc/NAME, or streams in braces: '{gvc="shop"} |= "error"'"""
        raise ValueError(f"{text!r} names no streams; {hint}")
    if key.kind is Kind.GVC:
        return LogQuery((LabelMatcher("gvc", "=", key.name),))
    return LogQuery((LabelMatcher("gvc", "=", key.gvc), LabelMatcher("workload", "=", key.name)))


def explain_forbidden(query: LogQuery, workloads: frozenset[str] | None) -> str:
    """Why a ``query`` names a workload that is none of ``workloads`` (None: all), or a GVC that has none; "" if not.

    Whether what it names exists makes no difference.
    """
    named = {each.label: each.value for each in query.matchers if each.op == "="}
    if workloads is None or "gvc" not in named:
        return ""
    if "workload" in named:
        key = _workload_key(named)
        return "" if key in workloads else f"no permission `readLogs` on {key}"
    if any(Key.parse(each).gvc == named["gvc"] for each in workloads):
        return ""
    return f"no permission `readLogs` on a workload of {Kind.GVC}/{named['gvc']}"


def _workload_key(labels: Mapping[str, str]) -> str:
    return f"{Kind.WORKLOAD}/{labels['gvc']}/{labels['workload']}"


class LogReader:
    """Reads the lines that ``options`` select, with limits ``bounds`` on its expressions.

    ``newest`` returns existing lines, oldest first, ``more`` the lines since the last call. Raises PermissionError.
    """

    def __init__(self, settings: Settings, options: LogOptions, bounds: Bounds) -> None:
        self._settings = settings
        self._options = options

        def lines_of(block: Block, stream: Mapping[str, str]) -> Sequence[bytes]:
            return select(options.query, block, stream)

        self._search = Search(self._places, bounds.streams(options.selects), bounds.lines(lines_of))

    def newest(self) -> list[Line]:
        """The newest lines, at most as many as the limit."""
        since, until = self._options.since, self._options.until
        span = Span() if since is None else Span(since=int(since * 1000))
        return self._search.newest(
            self._options.limit, span if until is None else span._replace(until=int(until * 1000))
        )

    def more(self) -> list[Line]:
        """New lines; blocks only while it reads files."""
        return self._search.more()

    def nothing_selected(self, open_records: Callable[[], Records]) -> str:
        """Why no stream is selected, "" if one is.

        Raises NotFoundError if a location, GVC or workload that the query names does not exist.
        """
        if any(self._search.streams()):
            return ""
        self._check_location()
        self._check_target(open_records)
        return self._others()

    def _places(self) -> dict[str, Path]:
        location = self._options.location
        return {name: root for name, root in roots(self._settings.state).items() if location in (None, name)}

    def _check_location(self) -> None:
        location = self._options.location
        known = self._settings.locations.keys() | roots(self._settings.state).keys()
        if location is not None and location not in known:
            raise NotFoundError(f"there is no location {location!r}{did_you_mean(location, known)}")

    def _check_target(self, open_records: Callable[[], Records]) -> None:
        query = self._options.query
        named = {each.label: each.value for each in query.matchers if each.op == "="}
        if len(named) < len(query.matchers) or named.keys() not in ({"gvc"}, {"gvc", "workload"}):
            return
        if any(query.selects(stream.labels()) for stream in streams(roots(self._settings.state))):
            return  # deleted workloads can have logs
        with closing(open_records()) as records:
            try:
                if "workload" in named:
                    check_key(records, Key(Kind.WORKLOAD, named["gvc"], named["workload"]))
                else:
                    check_gvc(records, named["gvc"])
            except NotFoundError as error:
                end = "" if str(error).endswith("?") else ";"
                raise NotFoundError(f"{error}{end} {self._others()}") from None

    def _others(self) -> str:
        """The existing logs, for the message when the query selects none."""
        location = self._options.location
        there = list(streams(roots(self._settings.state)))
        if not there:
            return "there are no logs on this host"
        if location is not None and location not in {stream.location for stream in there}:
            found, begin = {stream.location for stream in there}, f"there are no logs of {location} on this host"
        elif replicas := {each.replica for each in there if self._options.query.selects(each.labels())}:
            found, begin = replicas, f"the query selects no logs of {self._options.replica}"
        else:
            found, begin = {f"{stream.gvc}/{stream.workload}" for stream in there}, "the query selects no logs"
        return f"{begin}; there are logs of {', '.join(sorted(found)[:_NAMED])}{', …' if len(found) > _NAMED else ''}"
