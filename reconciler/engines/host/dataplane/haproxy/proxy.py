"""The live HAProxy of a location: reads its state, and brings it to what is desired by its socket or a reload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import chain

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.haproxy.config import (
    CROWD,
    EMPTY,
    FULL,
    HOLDS,
    HTTP,
    NO_REPLICA,
    PORTS,
    Backend,
    ConnectionLimits,
    ProxyOptions,
    Suspended,
)
from reconciler.engines.host.dataplane.haproxy.config_file import ConfigFile, ConfigPlan, FindPorts
from reconciler.engines.host.dataplane.haproxy.live import (
    SHOW_FACTS,
    Counted,
    Facts,
    LiveBackend,
    StatReader,
    desired_entries,
    list_add_commands,
    list_commands,
    list_remove_commands,
    map_commands,
    read_facts,
)
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.measuring import SHOW_BACKENDS
from reconciler.engines.host.dataplane.haproxy.rendering.render import Frontends
from reconciler.engines.host.dataplane.haproxy.routes import LiveMaps
from reconciler.engines.host.dataplane.haproxy.split import SPLITS, backend_of
from reconciler.engines.host.dataplane.haproxy.workers.former import FormerWorkers
from reconciler.engines.host.dataplane.haproxy.workers.progress import WorkerProgress
from reconciler.engines.host.dataplane.protocol import Traffic
from reconciler.errors import EngineError

RELEASE_MEMORY = ("collect garbage", f"clear map @4294967295 ./{PORTS}")
"""Commands that take some 10 ms together. The first one is of our script, for the memory of scripts. The second one
removes nothing, since no map ever has this version, and then HAProxy returns free memory to the system.
"""

FLOOD = 100
"""So many connections at once are a flood: each leaves 20 KB that HAProxy keeps."""
FLOOD_ENDS = 4
"""A flood is over when one connection in so many is left."""
RELEASE_SECONDS = 5.0
"""The least seconds between two releases of memory."""

RELOAD_SECONDS = 1.0
"""The least time between two reloads, so that many new workloads cost one."""

FEW_WORKERS = 3
"""With more former workers, the time between two reloads grows."""

FEW = 30
"""With fewer workloads, reading their state one by one is faster than reading everything."""

WHOLE_SECONDS = 10.0
"""The longest time between two reads of everything: one takes HAProxy 27 ms with 2,000 workloads."""


class Floods:
    """Notes the most connections at once since memory was released."""

    def __init__(self) -> None:
        self._most = 0
        self._few = False
        self._released_at = float("-inf")

    def has_ended(self, connections: int, now: float) -> bool:
        """Whether a flood has ended, with so many ``connections`` left at ``now`` (monotonic seconds).

        True once for each flood, at most every 5 seconds, and never at the first call with few connections: the others
        may still be leaving.
        """
        self._most = max(self._most, connections)
        before, self._few = self._few, connections <= self._most // FLOOD_ENDS
        if self._most < FLOOD or not (before and self._few) or now < self._released_at + RELEASE_SECONDS:
            return False
        self._most, self._released_at = connections, now
        return True


class LiveProxy:
    """The process with its state as it was read last: ``live``, empty while it does not serve.

    ``due`` is when a reload is permitted that has to wait; None if none waits. While it is ``crowded``, few requests of
    each workload may wait; while it is ``full``, no workload gets more connections than its share.
    """

    def __init__(self, master: Master, clock: Clock) -> None:
        self.live: dict[str, LiveBackend] = {}
        self.read_at = float("-inf")
        self.due: float | None = None
        self.crowded = self.full = False
        self._lost = False
        self._failure: EngineError | None = None
        self._master = master
        self._options = ProxyOptions("")
        self._clock = clock
        self._facts = Facts()
        self._process = ""
        self._stat, self._counts = StatReader(), StatReader()
        self._floods = Floods()
        self._whole_at = float("-inf")
        self._unfinished: set[str] = set()
        self._compared: dict[str, tuple[Backend, LiveBackend]] = {}
        self._file = ConfigFile(master)
        self._maps = LiveMaps(master)
        self._former = FormerWorkers(master)
        self._plan: ConfigPlan | None = None
        self._empty: dict[str, str] = {}
        self._loaded_at = float("-inf")
        self._progress = WorkerProgress(master)

    def open(self, options: ProxyOptions, find: FindPorts) -> None:
        """Render with ``options`` from now on, and find ports for workloads to come by ``find``."""
        self._options = options
        self._file.open(options, find)

    async def read(self, names: Set[str]) -> None:
        """Read the state of the backends ``names``; every 10 seconds, and of a new process, that of all others too.

        Raises EngineError if HAProxy does not answer.
        """
        self.due = None
        if not self._master.running:
            self._lost = self._lost or bool(self.live)
            await self._master.wait_for_workers((self._facts.process, *self._facts.former))
            self.live, self._facts, self._process = {}, Facts(), ""
            return
        try:
            self._facts = read_facts(await self._master.ask(SHOW_FACTS))
            self._progress.note_answer()
            self._master.trim_output()
            if self._floods.has_ended(self._facts.connections, self._clock.monotonic()):
                await self._master.send(RELEASE_MEMORY)
            if not self._facts.digest:
                # It drains after a stop, and takes no new requests.
                self.live = {}
                return
            same = self._facts.process == self._process
            recent = same and self._clock.monotonic() < self._whole_at + WHOLE_SECONDS
            await self.read_backends(names | self._unfinished if recent else None)
            await self._former.read(self._facts.former)
            self._process, self.read_at = self._facts.process, self._clock.monotonic()
        except EngineError:
            await self._wake_up()
            raise

    @property
    def current(self) -> bool:
        """Whether the process has the structure that was wanted last."""
        return self._plan is not None and self._facts.digest == self._plan.digest

    def is_on_hold(self, name: str) -> bool:
        """Whether requests to the backend ``name`` wait for the end of a hold."""
        return self.current and name in self._facts.holds

    @property
    def bound_ports(self) -> Mapping[str, frozenset[int]]:
        """The ports by mode at which the process listens, for workloads that come without a reload."""
        usable = self._options.runtime and self._master.running and self._facts.digest == self._file.digest
        return self._file.loaded.ports if usable else {}

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of connections."""
        return self._options.limits

    @property
    def listens(self) -> frozenset[int]:
        """The ports at which the process takes requests."""
        return self._file.loaded.ports.get(HTTP, frozenset()) if self._master.running else frozenset()

    def serves(self, name: str, port: int | None) -> bool:
        """Whether requests at ``port`` reach the backend ``name``."""
        return name in self.live and self._maps.in_force(PORTS).get(f"{port}") == name

    def traffic(self, name: str, *, apart: bool) -> Traffic:
        """The counts of the backend ``name``; ``apart``: of those requests that are counted apart."""
        live, former = self.live[name], self._former.traffic(name)
        # A process that was not reloaded yet counts them together.
        apart, on_hold = apart and self.current, name in self._facts.holds
        counted = self._facts.counted.get(name, Counted())
        return former.plus(live.traffic_of(counted, on_hold=on_hold) if apart else live.traffic(on_hold=on_hold))

    async def show_backends(self) -> str:
        """The statistics of all backends. Raises EngineError."""
        return await self._master.ask(SHOW_BACKENDS)

    def waiting(self) -> dict[str, int]:
        """How many requests wait, by backend."""
        holds = self._facts.holds
        return {
            name: backend.traffic(on_hold=name in holds).waiting for name, backend in self.live.items() if backend.open
        }

    @property
    def counts_all(self) -> bool:
        """Whether the counts of all workers are known."""
        return self._former.known

    def count_refused(self, name: str) -> int:
        """The requests of the backend ``name`` that got no replica so far."""
        return self.live[name].refused + self._former.count_refused(name)

    def open_requests(self, names: Iterable[str], replica: str) -> int:
        """The requests that a server of the backends ``names`` works on, also of those that are served no longer."""
        servers = (self.live[name].servers.get(replica) for name in names if name in self.live)
        return sum(server.open for server in servers if server is not None) + sum(
            self._former.open(name, replica) for name in names
        )

    def backends_of(self, name: str) -> list[str]:
        """The backend ``name`` of a workload's first port, and those of its others, that any worker has."""
        names = self.live.keys() | self._former.names()
        return [text for text in names if text == name or text.startswith(f"{name}:")]

    def take_lost(self) -> bool:
        """Whether the process had ended by itself and serves again now, since the last call."""
        lost = self._lost and bool(self.live)
        self._lost = self._lost and not lost
        return lost

    async def read_backends(self, names: Set[str] | None) -> None:
        """Read the servers and counts of the backends ``names``; None: of all. Raises EngineError."""
        # The second number of `show stat` is the sum of types of rows: 2 for backends, 4 for servers.
        if names is not None and len(names) > FEW < len(self.live):
            # The servers of a backend without requests are as they were.
            counts = self._counts.read(await self._master.ask("@1 show stat -1 2 -1"))
            changed = {name for name in names & counts.keys() if counts[name].differs(self.live.get(name))}
            names = changed | self._unfinished
        if names is None or len(names) > FEW or len(self.live) <= FEW:
            self.live = self._stat.read(await self._master.ask("@1 show stat -1 6 -1"))
            self._whole_at = self._clock.monotonic()
            self._unfinished &= self.live.keys()
            self._compared = {name: pair for name, pair in self._compared.items() if name in self.live}
        elif names := names & self.live.keys():
            await self._read_named(names)

    async def _read_named(self, names: Set[str]) -> None:
        """Read these backends; one that the process does not have is no longer live."""
        if len(names) > FEW:
            await self.read_backends(None)
            return
        backends = StatReader().read(await self._master.ask(";".join(f"@1 show stat {name} 6 -1" for name in names)))
        self.live = {name: backend for name, backend in self.live.items() if name not in names} | {
            name: backend for name, backend in backends.items() if name in names
        }

    async def introduce(self, backends: Sequence[Backend]) -> None:
        """Add ``backends`` that the process lacks, before all others are compared, which shows what fails here."""
        with suppress(EngineError):
            if self.bound_ports and await self._send_new(backends):
                added = [backend for backend in backends if backend.name in self.live]
                self._file.note_introduced(added)
                await self._maps.add(PORTS, {f"{backend.port}": backend.name for backend in added})

    async def bring(
        self,
        backends: Sequence[Backend],
        suspended: tuple[Suspended, ...],
        holds: Mapping[str, str],
        frontends: Frontends,
    ) -> None:
        """Bring the process to ``backends`` and ``holds``: by a start, a reload, or commands. Raises EngineError.

        It answers instead of ``suspended`` workloads. ``holds`` maps the backends that an operator holds to the end of
        the hold.
        """
        self.due = None
        if not backends and not suspended and not frontends.outside:
            return  # Nothing can be served now: other programs have all the ports.
        # A new worker reads the maps at its start, so they are written before it is loaded.
        self._master.write_map(HOLDS, holds)
        self._master.write_map(SPLITS, desired_entries(backends, self._facts.splits))
        self._count_connections()
        self._empty = {backend.name: NO_REPLICA for backend in backends if not backend.servers}
        self._empty |= {CROWD: NO_REPLICA} if self.crowded else {}
        self._empty |= {FULL: NO_REPLICA} if self.full else {}
        self._master.write_map(EMPTY, self._empty)
        plan = self._plan = self._file.plan(backends, suspended, frontends, self.live if self._master.running else None)
        self._maps.write(PORTS, plan.ports)
        if self._master.running and self.current:
            self._failure = None
            self._file.write(plan)
        else:
            await self._load_when_due(plan)
        if self._facts.digest:
            await self._bring_live(plan, holds)
        if self._failure is not None:
            # Only now: what needs no reload is in force. The same error comes again, so its traceback would grow.
            raise self._failure.with_traceback(None)

    def _count_connections(self) -> None:
        """See whether there are many connections: that ends when there are half as many."""
        connections, limits = self._facts.connections, self.limits
        self.crowded = connections > limits.crowd // (2 if self.crowded else 1)
        self.full = connections > limits.full // (2 if self.full else 1)

    async def _bring_live(self, plan: ConfigPlan, holds: Mapping[str, str]) -> None:
        """Bring what a process that runs can take without a reload."""
        if self._options.lua:
            await self._master.send(map_commands(HOLDS, holds, self._facts.holds))
            self._facts = self._facts._replace(holds=holds)
        # A process with another file may lack the profiles and ports that a new backend needs.
        if self._facts.digest == self._file.digest:
            await self._add(plan)
        await self.send(plan.backends)
        await self._master.send(map_commands(EMPTY, self._empty, self._facts.empty))
        # Ports come last: a request that arrives finds its backend complete.
        await self._maps.bring()
        # After the maps, so that no port leads to them any more.
        if self._options.runtime and self.current:
            await self._remove(self.live.keys() - plan.needs.shapes.keys())

    async def _add(self, plan: ConfigPlan) -> None:
        """Add backends that the process lacks. It may refuse one: then a reload brings it."""
        new = plan.needs.shapes.keys() - self.live.keys()
        sent = bool(new) and await self._send_new([backend for backend in plan.backends if backend.name in new])
        if sent and self._file.note_added(plan, self.live):
            self.due = self._loaded_at + reload_pause(self._facts.former_workers)

    async def _send_new(self, backends: Sequence[Backend]) -> bool:
        """Send what adds ``backends``, and read them; return whether there was anything to send."""
        if todo := list(list_add_commands(self._options, self._file.loaded, backends, self.live)):
            await self._master.send(todo)
            await self._read_named({backend.name for backend in backends})
        return bool(todo)

    async def _remove(self, names: Set[str]) -> None:
        """Remove backends as far as their open requests permit; the next comparison goes on."""
        if names:
            await self._master.send(
                chain.from_iterable(list_remove_commands(name, self.live[name]) for name in sorted(names))
            )
            self._unfinished |= names
            await self._read_named(names)

    async def _load_when_due(self, plan: ConfigPlan) -> None:
        """Load the configuration, if enough time has passed since the last reload.

        A failure is remembered until the next attempt. What else is wanted is brought to the process that runs.
        """
        self.due = self._loaded_at + reload_pause(self._facts.former_workers)
        if self._clock.monotonic() < self.due:
            return
        self._failure = None
        try:
            await self._load(plan)
        except EngineError as error:
            self._failure = error

    def end(self) -> None:
        """Serve nothing; requests end first."""
        self._master.stop()
        self.live, self._facts, self.due = {}, Facts(), None

    async def send(self, backends: Sequence[Backend]) -> None:
        """Send what brings the servers of ``backends`` to what is wanted. Raises EngineError."""
        await self._send_entries(backends)
        todo = {name: texts for name, texts in map(self._compare, backends) if texts}
        if todo:
            await self._master.send(chain.from_iterable(todo.values()))
            await self.read_backends(todo.keys())

    async def _send_entries(self, backends: Sequence[Backend]) -> None:
        """Bring the map of versions to what is wanted, so that no cookie leads to a replica that leaves."""
        splits = self._facts.splits
        if not splits and not any(backend.split for backend in backends):
            return
        names = {backend.name for backend in backends}
        live = {entry: value for entry, value in splits.items() if backend_of(entry) in names}
        desired = desired_entries((backend for backend in backends if backend.name in self.live), live)
        if desired != live:
            await self._master.send(map_commands(SPLITS, desired, live))
            rest = {entry: value for entry, value in splits.items() if entry not in live}
            self._facts = self._facts._replace(splits=rest | desired)

    def _compare(self, backend: Backend) -> tuple[str, list[str]]:
        """The name of ``backend``, and what brings it to what is wanted. Most are, and have not changed since."""
        name = backend.name
        live, compared = self.live.get(name), self._compared.get(name)
        if live is None or (compared is not None and compared[0] is backend and compared[1] is live):
            return name, []
        texts = list(list_commands((backend,), self.live))
        if texts or len(live.replicas) > len(backend.servers):
            self._unfinished.add(name)
            self._compared.pop(name, None)
        else:
            self._unfinished.discard(name)
            self._compared[name] = (backend, live)
        return name, texts

    async def _load(self, plan: ConfigPlan) -> None:
        # Before the attempt: one that fails is not repeated without a pause either.
        self._loaded_at, self.due = self._clock.monotonic(), None
        await self._file.accept(plan, self._loaded_at)
        try:
            if self._master.running:
                await self._master.reload(plan.digest)
            else:
                await self._master.start()
        except EngineError:
            self._file.suspect()
            raise
        await self.read(set())

    async def _wake_up(self) -> None:
        """Let it open a lost socket again; end a process that hangs. Silence alone is no hang."""
        if not self._master.has_socket:
            await self._master.reload("")
        elif await self._progress.has_stopped(self._clock.monotonic()):
            self._master.kill()


def reload_pause(former_workers: int) -> float:
    """The least seconds between two reloads, while so many former workers still have connections.

    HAProxy ends the oldest one when there are too many, and cuts off its WebSockets and streams.
    """
    return RELOAD_SECONDS * max(1, former_workers + 1 - FEW_WORKERS)
