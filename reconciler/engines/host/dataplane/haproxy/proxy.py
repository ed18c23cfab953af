"""The live HAProxy of a location: reads its state, and brings it to what is wanted by its socket or a reload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.haproxy.config import (
    HOLDS,
    Backend,
    ProxyOptions,
    render,
    structure,
)
from reconciler.engines.host.dataplane.haproxy.live import (
    SHOW_FACTS,
    Counted,
    Facts,
    LiveBackend,
    StatReader,
    commands,
    map_commands,
    read_facts,
    wanted_entries,
)
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.split import SPLITS, backend_of
from reconciler.engines.host.dataplane.protocol import Service, Traffic
from reconciler.errors import EngineError
from reconciler.reasons import Reason

FEW = 30
"""With fewer workloads, reading their state one by one is faster than reading everything."""

WHOLE_SECONDS = 10.0
"""The longest time between two reads of everything: one takes HAProxy 27 ms with 2,000 workloads."""

RELOAD_SECONDS = 1.0
"""The least time between two reloads, so that many new workloads cost one."""

FEW_WORKERS = 3
"""With more former workers, the time between two reloads grows."""

REFUSED_SECONDS = 30.0
"""Seconds until a refused configuration is checked again."""

SILENT_SECONDS = 2.0
"""Seconds without an answer after which HAProxy is ended and started again; one that starts just now answers before."""


class _Refusal(NamedTuple):
    """The configuration that was refused last, when and why."""

    digest: str
    at: float
    message: str


class _Part(NamedTuple):
    """What the structure of a backend is made of."""

    service: Service
    port: int
    split: bool


class LiveProxy:
    """The process with its state as it was read last: ``live``, empty while it does not run.

    ``due`` is when a reload is permitted that has to wait; None if none waits.
    """

    def __init__(self, master: Master, clock: Clock) -> None:
        self.live: dict[str, LiveBackend] = {}
        self.read_at = float("-inf")
        self.due: float | None = None
        self._lost = False
        self._refused: _Refusal | None = None
        self._failure: EngineError | None = None
        self._master = master
        self._options = ProxyOptions("")
        self._clock = clock
        self._facts = Facts()
        self._process = ""
        self._stat, self._counts = StatReader(), StatReader()
        self._whole_at = float("-inf")
        self._unfinished: set[str] = set()
        self._compared: dict[str, tuple[Backend, LiveBackend]] = {}
        self._frontends = ""
        self._structure: tuple[tuple[list[_Part], str], str] = (([], ""), "")
        self._rendered: tuple[tuple[Sequence[Backend], str], str] = (((), ""), "")
        self._written = ""
        self._loaded_at = float("-inf")
        self._silent_since: float | None = None

    def open(self, options: ProxyOptions) -> None:
        """Render with ``options`` from now on."""
        self._options = options
        self._structure, self._rendered = (([], ""), ""), (((), ""), "")

    async def read(self, names: Set[str]) -> None:
        """Read the state of the backends ``names``; every 10 seconds, and of a new process, that of all others too.

        Raises EngineError if HAProxy does not answer.
        """
        self.due = None
        if not self._master.running:
            self._lost = self._lost or bool(self.live)
            self.live, self._facts, self._process = {}, Facts(), ""
            return
        try:
            self._facts = read_facts(await self._master.ask(SHOW_FACTS))
            self._silent_since = None
            self._master.trim_output()
            same = self._facts.process == self._process
            known = same and self._clock.monotonic() < self._whole_at + WHOLE_SECONDS
            await self._read_stat(names | self._unfinished if known else None)
            self._process, self.read_at = self._facts.process, self._clock.monotonic()
        except EngineError:
            await self._wake_up()
            raise

    @property
    def former_workers(self) -> int:
        """The number of workers that take no new connections."""
        return self._facts.former_workers

    @property
    def current(self) -> bool:
        """Whether the process has the structure that was wanted last."""
        return self._facts.digest == self._structure[1]

    def traffic(self, name: str, *, apart: bool) -> Traffic:
        """The counts of the backend ``name``; ``apart``: of those requests that are counted apart."""
        live = self.live[name]
        # A process that was not reloaded yet counts them together.
        return live.traffic_of(self._facts.counted.get(name, Counted())) if apart and self.current else live.traffic

    def take_lost(self) -> bool:
        """Whether the process had ended by itself and serves again now, since the last call."""
        lost = self._lost and bool(self.live)
        self._lost = self._lost and not lost
        return lost

    async def read_some(self, names: Set[str]) -> None:
        """Read the servers of the backends ``names`` again. Raises EngineError."""
        await self._read_stat(names)

    async def _read_stat(self, names: Set[str] | None) -> None:
        """Read the servers and counts of the backends ``names``; None: of all."""
        if names is not None and len(names) > FEW < len(self.live):
            # The servers of a backend without requests are as they were.
            counts = self._counts.read(await self._master.ask("@1 show stat -1 2 -1"))
            changed = {name for name in names & counts.keys() if counts[name].differs(self.live.get(name))}
            names = changed | self._unfinished
        if names is None or len(names) > FEW or len(self.live) <= FEW:
            self.live = self._stat.read(await self._master.ask("@1 show stat -1 6 -1"))
            self._whole_at = self._clock.monotonic()
            self._unfinished &= self.live.keys()
            self._compared = {name: each for name, each in self._compared.items() if name in self.live}
        elif names := names & self.live.keys():
            answer = await self._master.ask(";".join(f"@1 show stat {name} 6 -1" for name in names))
            found = StatReader().read(answer)
            self.live.update({name: each for name, each in found.items() if name in self.live})

    async def bring(self, backends: Sequence[Backend], holds: Mapping[str, str], frontends: str = "") -> None:
        """Bring the process to ``backends`` and ``holds``: by a start, a reload, or commands. Raises EngineError.

        ``holds`` maps the backends that an operator holds to the end of the hold. ``frontends`` are the sections that
        take requests from outside.
        """
        self.due, self._frontends = None, frontends
        digest = self._structure_of(backends)
        if not backends and not frontends:
            # Nothing can be served now: other programs have all the ports.
            return
        self._master.write_map(HOLDS, holds)
        self._master.write_map(SPLITS, wanted_entries(backends, self._facts.splits))
        if self._master.running and self._facts.digest == digest:
            self._failure = None
            self._write(self._text_of(backends))
        else:
            await self._load_when_due(backends, digest)
        if self._options.lua and self.live:
            await self._master.send(map_commands(HOLDS, holds, self._facts.holds))
        await self.send(backends)
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _load_when_due(self, backends: Sequence[Backend], digest: str) -> None:
        """Load the configuration, if enough time has passed since the last reload.

        A failure is remembered until the next attempt. What else is wanted is brought to the process that runs.
        """
        self.due = self._loaded_at + reload_pause(self.former_workers)
        if self._clock.monotonic() < self.due:
            return
        self._failure = None
        try:
            await self._load(self._text_of(backends), digest)
        except EngineError as error:
            self._failure = error

    def end(self) -> None:
        """Serve nothing; requests end first."""
        self._master.stop()
        self.live, self._facts, self.due = {}, Facts(), None

    async def send(self, backends: Sequence[Backend]) -> None:
        """Send what brings the servers of ``backends`` to what is wanted. Raises EngineError."""
        await self._send_entries(backends)
        todo = {name: found for name, found in map(self._compare, backends) if found}
        if todo:
            await self._master.send(chain.from_iterable(todo.values()))
            await self.read_some(todo.keys())

    async def _send_entries(self, backends: Sequence[Backend]) -> None:
        """Bring the map of versions to what is wanted, so that no cookie leads to a replica that leaves."""
        names = {each.name for each in backends}
        known = self._facts.splits
        live = {entry: value for entry, value in known.items() if backend_of(entry) in names}
        wanted = wanted_entries((each for each in backends if each.name in self.live), live)
        if wanted != live:
            await self._master.send(map_commands(SPLITS, wanted, live))
            rest = {entry: value for entry, value in known.items() if entry not in live}
            self._facts = self._facts._replace(splits=rest | wanted)

    def _compare(self, backend: Backend) -> tuple[str, list[str]]:
        """The name of ``backend``, and what brings it to what is wanted. Most are, and have not changed since."""
        name = backend.name
        live, known = self.live.get(name), self._compared.get(name)
        if live is None or (known is not None and known[0] is backend and known[1] is live):
            return name, []
        found = list(commands((backend,), self.live))
        if found or len(live.servers) > len(backend.servers) + 1:
            self._unfinished.add(name)
            self._compared.pop(name, None)
        else:
            self._unfinished.discard(name)
            self._compared[name] = (backend, live)
        return name, found

    def _structure_of(self, backends: Sequence[Backend]) -> str:
        parts = [_Part(each.service, each.port, bool(each.split)) for each in backends], self._frontends
        if parts != self._structure[0]:
            self._structure = (parts, structure(self._options, backends, self._frontends))
        return self._structure[1]

    def _text_of(self, backends: Sequence[Backend]) -> str:
        if (backends, self._frontends) != self._rendered[0]:
            self._rendered = ((backends, self._frontends), render(self._options, backends, self._frontends))
        return self._rendered[1]

    async def _load(self, text: str, digest: str) -> None:
        self._loaded_at, self.due = self._clock.monotonic(), None
        await self._check(text, digest)
        self._written = text
        if self._master.running:
            await self._master.reload(digest)
        else:
            await self._master.start()
        await self.read(set())

    async def _check(self, text: str, digest: str) -> None:
        """Let HAProxy check ``text``; one that it refused is checked again only after a while. Raises EngineError."""
        refused = self._refused
        if refused is not None and refused.digest == digest and self._loaded_at < refused.at + REFUSED_SECONDS:
            raise EngineError(refused.message, reason=Reason.PROXY_CONFIG_REFUSED)
        try:
            await self._master.check_config(text)
        except EngineError as error:
            self._refused = _Refusal(digest, self._loaded_at, str(error))
            raise
        self._refused = None

    def _write(self, text: str) -> None:
        if text != self._written:
            self._master.replace_config(text)
            self._written = text

    async def _wake_up(self) -> None:
        """Let it open a lost socket again; end a process that hangs."""
        if not self._master.has_socket:
            await self._master.reload("")
            return
        now = self._clock.monotonic()
        since = self._silent_since = now if self._silent_since is None else self._silent_since
        if now - since >= SILENT_SECONDS:
            self._silent_since = None
            self._master.kill()


def reload_pause(former_workers: int) -> float:
    """The least seconds between two reloads, while so many former workers still have connections.

    HAProxy ends the oldest one when there are too many, and cuts off its WebSockets and streams.
    """
    return RELOAD_SECONDS * max(1, former_workers + 1 - FEW_WORKERS)
