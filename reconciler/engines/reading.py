"""What an engine shows of a location, with or without a running daemon: values, and the protocol of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import msgspec

from reconciler.model.key import Key

if TYPE_CHECKING:
    from reconciler.engines.volumes import VolumeSnapshot
    from reconciler.logql.query import LogQuery
    from reconciler.terminal.session import ExecSession, TerminalSize


class ReplicaState(StrEnum):
    """The state of a replica, as shown to users."""

    LOADING = "Loading"
    READY = "Ready"
    NOT_READY = "Not ready"
    BACKOFF = "Backoff"
    ENDING = "Ending"
    UNKNOWN = "Unknown"


class ContainerRow(msgspec.Struct, frozen=True):
    """A container of a replica; ``phase`` is a word for people, such as ``running``."""

    name: str
    phase: str
    running: bool = True


class ReplicaRow(msgspec.Struct, frozen=True):
    """One replica at a moment.

    ``cpu`` is in millicores since the same reader was last asked, None the first time. ``memory`` is in bytes, None if
    nothing runs; ``age`` is in seconds. ``fault`` is why the replica is not ready, why it ends, or which hook failed.
    ``ports`` are the assigned ones by the declared ones. ``node`` is the machine of a cluster that it runs on.
    """

    key: Key
    location: str
    name: str
    version: int
    state: ReplicaState
    containers: tuple[ContainerRow, ...] = ()
    restarts: int = 0
    cpu: int | None = None
    memory: int | None = None
    age: float = 0.0
    fault: str = ""
    ports: Mapping[int, int] = {}
    node: str = ""


class LogStream(msgspec.Struct, frozen=True, order=True):
    """The output of one container of one replica."""

    gvc: str
    workload: str
    replica: str
    container: str
    location: str

    def labels(self) -> dict[str, str]:
        """The labels that queries select by."""
        return {name: getattr(self, name) for name in LogStream.__struct_fields__}


class LogLine(NamedTuple):
    """One line and its time in milliseconds since the epoch: when it was read, or written if its form has that."""

    ms: int
    stream: LogStream
    text: bytes


class LogSpan(NamedTuple):
    """A period in milliseconds since the epoch, both ends included."""

    since: int = 0
    until: int = 1 << 62


ALWAYS = LogSpan()


class LogBlock(Protocol):
    """Lines of one stream that an engine stores together."""

    def text(self) -> bytes:
        """The output as it is stored."""

    def lines(self, text: bytes | None = None) -> Sequence[bytes]:
        """The output as lines; ``text`` is that of the block, if the caller has it."""


StreamFilter = Callable[[Mapping[str, str]], bool]
"""Whether a stream with these labels is selected."""
LineFilter = Callable[[LogBlock, Mapping[str, str]], Sequence[bytes]]
"""The selected lines of a block of a stream with these labels, in their order."""


class LogSelection(NamedTuple):
    """Which streams are read, and which of their lines."""

    streams: StreamFilter
    lines: LineFilter


def select_lines(query: LogQuery, block: LogBlock, stream: Mapping[str, str]) -> Sequence[bytes]:
    """The lines of ``block``, of a stream with these labels, that match ``query``, in their order."""
    if query.takes_all:
        return block.lines()
    text = block.text()
    return query.filter_lines(block.lines(text), stream) if query.may_match(text) else ()


class LogSearch(Protocol):
    """Lines that a selection takes. Both methods block while they read, and raise PermissionError."""

    def backward(self, span: LogSpan = ALWAYS) -> Iterator[LogLine]:
        """The lines within ``span`` that existed when the search was made, newest first."""

    def more(self) -> Sequence[LogLine]:
        """The lines since the last call, or since the search was made, oldest first."""


class ExecTarget(NamedTuple):
    """A container that runs at a location."""

    location: str
    key: Key
    replica: str
    container: str


class TcpAddress(NamedTuple):
    """One end of a connection."""

    host: str
    port: int


class TcpLink(NamedTuple):
    """A connection as its server sees it.

    ``origin`` is the address of the client as trusted proxies name it, "" without any.
    """

    client: TcpAddress
    server: TcpAddress
    origin: str = ""


Sender = int | TcpLink
"""Who sends a request: the process at the other end of a unix socket, or a connection."""


class LocationReader(Protocol):
    """Reads what the engine called ``engine`` has at ``location``. What it can show is in its further protocols."""

    engine: str
    location: str


@runtime_checkable
class SupportsReplicaRows(LocationReader, Protocol):
    """A reader of the replicas and of what they use."""

    def replicas(self) -> Sequence[ReplicaRow]:
        """The replicas now, ordered by workload and name. Blocks. Raises PermissionError and EngineError."""


@runtime_checkable
class SupportsLogs(LocationReader, Protocol):
    """A reader of the logs of workloads, also of deleted ones."""

    def log_streams(self) -> Iterable[LogStream]:
        """Every stream that exists, in order. Blocks. Raises PermissionError."""

    def search_logs(self, selection: LogSelection) -> LogSearch:
        """A search for what ``selection`` takes. Blocks. Raises PermissionError."""


@runtime_checkable
class SupportsSessions(LocationReader, Protocol):
    """A reader that runs programs beside those of containers."""

    async def open_session(self, target: ExecTarget, argv: Sequence[str], terminal: TerminalSize | None) -> ExecSession:
        """Run ``argv`` in a container. Raises EngineError, reason NotRunning if it does not run."""


@runtime_checkable
class SupportsFinalSnapshots(LocationReader, Protocol):
    """A reader of the final snapshots of deleted volumes, which the records do not have."""

    def final_snapshots(self) -> Iterable[VolumeSnapshot]:
        """All of them. Blocks. Raises EngineError."""

    def delete_final_snapshot(self, snapshot: VolumeSnapshot) -> None:
        """Delete one. Blocks. Raises EngineError."""


@runtime_checkable
class SupportsSnapshotMoves(LocationReader, Protocol):
    """A reader that brings snapshots from elsewhere; afterwards, a command can restore them."""

    async def import_snapshot(self, key: Key, index: int, name: str) -> None:
        """Bring the exported snapshot ``name`` of a volume back. Raises UsageError and EngineError."""

    def clone_snapshot(self, source: Key, name: str, target: Key, index: int) -> None:
        """Make a snapshot of ``source`` one of the volume with the same index of ``target``. Raises EngineError."""


@runtime_checkable
class SupportsSenders(LocationReader, Protocol):
    """A reader that can tell which workload sends a request."""

    def has_token(self, key: Key, token: str) -> bool:
        """Whether ``token`` is the one of the workload ``key`` here. Blocks. Raises EngineError."""

    def is_sender(self, key: Key, token: str, sender: Sender) -> bool:
        """Whether a process of the workload ``key``, with ``token``, is ``sender``. Blocks. Raises
        EngineError."""


@runtime_checkable
class SupportsTrials(LocationReader, Protocol):
    """A reader that shows a trial of this machine, and ends it."""

    def addresses(self) -> Mapping[str, str]:
        """Where each workload with ready replicas answers, and their number, by ``GVC/WORKLOAD``."""

    def is_serving(self) -> bool:
        """Whether requests reach each workload with ready replicas: what leads them there may start later."""

    async def end(self) -> None:
        """Stop everything that runs at the location; the next start creates it again. Raises EngineError."""


def explain_missing(reader: LocationReader, what: str) -> str:
    """Why ``reader`` cannot show ``what`` ("sessions"), for people."""
    return f"{reader.location} has no {what}: its engine is {reader.engine}"
