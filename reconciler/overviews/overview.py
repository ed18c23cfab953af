"""What an overview is: its name, its parameters, how it is read, and how each medium shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from reconciler.command_words import SELECTOR, SINCE, SORT, SharedOption
from reconciler.render.style import TextStyle

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.model.target import Target
    from reconciler.records.store import Records
    from reconciler.settings import Settings

FOLLOW = "follow"
"""The parameter that every feed has: whether new entries are shown as they come."""
LAST = "last"
"""The parameter that every feed has: how many past entries are shown."""
SEARCHES = frozenset({"state", "text"})
"""The parameters that search among all entries, so that none is no sign that nothing is recorded."""
WIDE = "wide"
"""The parameter that every overview has in the API: whether its text has all columns."""
SOURCES = "source"
"""The word that stands for sources in the place of a kind."""


ParameterType = Literal["text", "kind", "key", "target", "revision", "number", "time", "flag", "state"]


class ReadContext:
    """What overviews are read from; ``now`` is the time, ``daemon_runs`` whether a daemon runs here.

    ``reads_logs``: whoever reads may read every log. Lines of logs may have secrets.
    """

    def __init__(
        self,
        settings: Settings,
        open_records: Callable[[], Records],
        now: Callable[[], float],
        daemon_runs: Callable[[], bool],
        *,
        reads_logs: bool = False,
    ) -> None:
        self.settings = settings
        self.now = now
        self.daemon_runs = daemon_runs
        self.reads_logs = reads_logs
        self._open_records = open_records

    @cached_property
    def records(self) -> Records:
        """The records, opened by the first overview that needs them. Raises RecordsError."""
        return self._open_records()

    def find_key(self, target: Target | None) -> Key | None:
        """The resource that ``target`` names. Raises UsageError and NotFoundError."""
        from reconciler.queries.targets import resolve_resource

        if target is None or target.key is not None:
            return target and target.key
        return resolve_resource(self.settings, self.records, target)

    def find_target(self, target: Target) -> Key | str:
        """The resource, or ``source/NAME``, that ``target`` names. Raises UsageError and NotFoundError."""
        from reconciler.queries.targets import resolve_target

        return target.key or resolve_target(self.settings, self.records, target)


class Entries(NamedTuple):
    """The entries of a list, read as they are shown, and what they are read from; ``kind`` is SOURCES for sources."""

    rows: Iterable[Any]
    context: ReadContext
    kind: str = ""


class Parameter(NamedTuple):
    """A parameter of an overview: an argument of its command, or with a ``help`` an option, and a query parameter.

    A ``kind`` is that of resources, or SOURCES; a ``key`` names a resource, a ``target`` a resource or source, a
    ``revision`` can also be a commit. A ``number`` is within ``bounds``, of which only the API has the upper one. A
    ``time`` is a time, or an age; a ``state`` is one in which resources are. ``spellings`` are those of the option, if
    it is not only the name.
    """

    name: str
    type: ParameterType = "text"
    help: str = ""
    metavar: str = ""
    default: Any = None
    required: bool = False
    bounds: tuple[int, int] = (0, 0)
    spellings: tuple[str, ...] = ()


class Feed(Protocol):
    """Entries that go on."""

    @property
    def position(self) -> int:
        """The last entry that was read, by its number."""

    def resume(self, position: int) -> None:
        """Continue after the entry at ``position``, which another feed has read."""

    def newest(self, last: int, /) -> Sequence[Any]:
        """The last entries, at most ``last``, oldest first; ``more`` continues after them."""

    def more(self) -> Sequence[Any]:
        """The next new entries."""


class Measurement(Protocol):
    """What is used between two reads."""

    def read(self) -> Sequence[Any]:
        """The entries now, with what each used since the last call."""


class Listing(NamedTuple):
    """How the entries of a list become JSON values, and what chooses among them.

    ``item`` makes the JSON values of an entry, which are of ``item_kind``; a command has them below ``member``, and
    what ``extras`` returns beside it. ``read_tags`` reads the tags of an entry, ``read_time`` its time in seconds since
    the epoch; None where entries have none. Without ``has_headings``, the text has no line above the entries.
    """

    item: Callable[[Any], Mapping[str, Any]]
    item_kind: str
    member: str = "items"
    extras: Callable[[Entries], Mapping[str, Any]] | None = None
    read_tags: Callable[[ReadContext, Any], Mapping[str, Any]] | None = None
    read_time: Callable[[ReadContext, Any], float | None] | None = None
    has_headings: bool = True


class Overview(NamedTuple):
    """An overview: the command ``reconciler NAME``, and the operation GET ``path`` of the API, below the org.

    ``line`` is its line in the list of commands, ``help`` its own help, ``summary`` that of the operation. ``read``
    gets a context, and the parameters by name. ``text`` shows what it returns; for "", a command prints ``nothing`` on
    standard error. It returns Entries if there is a ``listing``, else a value of which ``document`` makes JSON values,
    whose member ``named`` has what has names; the API has text first where it ``is_for_people``.
    ``notes`` are lines for standard error, which the API has at ``notes_path``. With ``is_feed``, ``read`` returns a
    Feed, and JSON is one object a line. With ``is_measured``, it returns a Measurement. Their entries are shown as
    Entries, too. ``exit_code`` is that of its command, and ``is_changing`` whether the value changes by itself, so that
    one can wait; the API has them in the headers Exit-Code and Changing. ``progress``
    are lines about what is waited for.
    """

    name: str
    path: str
    line: str
    help: str
    example: str
    summary: str
    parameters: tuple[Parameter, ...]
    read: Callable[..., Any]
    text: Callable[[Any, TextStyle], str]
    listing: Listing | None = None
    document: Callable[[Any], Mapping[str, Any]] | None = None
    named: str = ""
    is_for_people: bool = False
    notes: Callable[[Any], Iterable[str]] | None = None
    notes_path: str = ""
    nothing: str = ""
    is_feed: bool = False
    is_measured: bool = False
    exit_code: Callable[[Any], int] | None = None
    is_changing: Callable[[Any], bool] | None = None
    progress: Callable[[Any], list[str]] | None = None

    @property
    def choices(self) -> tuple[Parameter, ...]:
        """The parameters that choose among the entries of a list."""
        if self.listing is None:
            return ()
        return tuple(
            parameter
            for parameter, is_offered in (
                (_SELECTOR, self.listing.read_tags is not None),
                (_SORT, True),
                (_LIMIT, all(parameter.name != LAST for parameter in self.parameters)),
                (_SINCE, self.listing.read_time is not None),
            )
            if is_offered
        )


def share_parameter(
    option: SharedOption,
    name: str,
    kind: ParameterType = "text",
    bounds: tuple[int, int] = (0, 0),
) -> Parameter:
    """The parameter ``name`` whose ``option`` is that of `platform`, too."""
    default = int(option.default) if option.default else None
    return Parameter(name, kind, option.help, option.metavar, default, bounds=bounds, spellings=option.spellings)


_SELECTOR = share_parameter(SELECTOR, "selector")
_SORT = share_parameter(SORT, "sort")
_LIMIT = Parameter("limit", "number", "At most N of them.", "N", bounds=(1, 100_000))
_SINCE = share_parameter(SINCE, "since", "time")
