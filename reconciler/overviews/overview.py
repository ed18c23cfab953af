"""What an overview is: its name, its parameters, how it is read, and how each medium shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.model.target import Target
    from reconciler.records.store import Records
    from reconciler.settings import Settings

FOLLOW = "follow"
"""The parameter that every feed has: whether new entries are shown as they come."""
LAST = "last"
"""The parameter that every feed has: how many past entries are shown."""


class ReadContext:
    """What overviews are read from; ``now`` is the time, ``daemon_runs`` whether a daemon runs here."""

    def __init__(
        self,
        settings: Settings,
        open_records: Callable[[], Records],
        now: Callable[[], float],
        daemon_runs: Callable[[], bool],
    ) -> None:
        self.settings = settings
        self.now = now
        self.daemon_runs = daemon_runs
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


class Parameter(NamedTuple):
    """A parameter of an overview: an argument of its command, or with a ``help`` an option, and a query parameter.

    A ``kind`` is that of resources, a ``key`` names a resource, a ``target`` a resource or source, a ``revision`` can
    also be a commit. A ``number`` is within ``bounds``, of which only the API has the upper one.
    """

    name: str
    type: Literal["text", "kind", "key", "target", "revision", "number", "flag"] = "text"
    help: str = ""
    metavar: str = ""
    default: Any = None
    required: bool = False
    bounds: tuple[int, int] = (0, 0)


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


class Overview(NamedTuple):
    """An overview: the command ``reconciler NAME``, and the operation GET ``path`` of the API, below the org.

    ``line`` is its line in the list of commands, ``help`` its own help, ``summary`` that of the operation. ``read``
    gets a context, and the parameters by name. ``text`` shows what it returns; for "", a command prints ``nothing`` on
    standard error. ``items`` makes JSON values of its entries, which are of ``item_kind``; a command has them below
    ``member``. ``forms`` are other forms of all of it, in parts. ``notes`` are lines for standard error, which the API
    has at ``notes_path``. With ``is_feed``, ``read`` returns a Feed, ``text`` and ``items`` show its entries, and JSON
    is one object a line. With ``is_measured``, it returns a Measurement, and they show what its last ``read`` returns.
    ``exit_code`` is that of its command, and ``is_changing`` whether the value changes by itself, so that one can wait;
    the API has them in the headers Exit-Code and Changing. ``progress`` are lines about what is waited for.
    """

    name: str
    path: str
    line: str
    help: str
    example: str
    summary: str
    parameters: tuple[Parameter, ...]
    read: Callable[..., Any]
    text: Callable[[Any, bool], str]
    items: Callable[[Any], Iterable[Mapping[str, Any]]] | None = None
    item_kind: str = ""
    member: str = "items"
    forms: Mapping[str, Callable[[Any], Iterator[str]]] = {}
    notes: Callable[[Any], Iterable[str]] | None = None
    notes_path: str = ""
    nothing: str = ""
    is_feed: bool = False
    is_measured: bool = False
    exit_code: Callable[[Any], int] | None = None
    is_changing: Callable[[Any], bool] | None = None
    progress: Callable[[Any], list[str]] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The forms that its command offers, the default first."""
        return ("text", "json") if self.items is not None else ("text", *self.forms)
