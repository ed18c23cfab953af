"""What HAProxy is desired to serve: services, their ready replicas and ports, as the backends of its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import ceil

from msgspec.structs import replace

from reconciler.engines.host.dataplane.endpoints import Endpoint
from reconciler.engines.host.dataplane.haproxy.config import (
    HTTP,
    OWN,
    Backend,
    Server,
    Suspended,
    backend_name,
    encode_name,
    make_server,
    mode_of,
)
from reconciler.engines.host.dataplane.haproxy.live import Live, LiveBackend
from reconciler.engines.host.dataplane.haproxy.rendering.render import read_ports
from reconciler.engines.host.dataplane.ports import ServicePorts
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.engines.host.dataplane.split import server_weights
from reconciler.engines.workload.routing.table import Outside
from reconciler.errors import EngineError
from reconciler.model.key import Key

FRESH_SECONDS = 2.0
"""For how long a new replica is expected to get requests at once, such as those that were held."""
FEW_FRESH = 30
"""More workloads with new replicas than these are not observed that closely: a daemon has just started."""


class DesiredState:
    """The desired state of one location. ``errors`` are of workloads that cannot be served at their port."""

    def __init__(self, ports: ServicePorts) -> None:
        self.services: dict[Key, Service] = {}
        self._suspended: set[Key] = set()
        self.errors: dict[Key, str] = {}
        self._bound: Mapping[str, frozenset[int]] = {}
        self._listens: Set[int] = frozenset()
        self._ports = ports
        self._drains = False
        self._ready: dict[Key, tuple[Endpoint, ...]] = {}
        self._proven: dict[Key, set[tuple[str, str]]] = {}
        self._backends: dict[Key, tuple[str, ...]] = {}
        self._names: dict[str, Key] = {}
        self._ports_of: dict[str, tuple[int, str]] = {}
        self._ordered: list[str] | None = None
        self._scaled: dict[str, tuple[Key, bool]] | None = None
        self._built: dict[str, Backend] = {}
        self._unproven: set[str] = set()
        self._fresh: dict[str, float] = {}
        self._noted: dict[str, LiveBackend] = {}
        self._outside: Mapping[Key, Outside] = {}
        self._adopted: dict[str, int] = {}

    def update(self, key: Key, ready: tuple[Endpoint, ...], now: float = 0.0) -> None:
        """Set the ready replicas of ``key``. One that comes back later has to prove itself again."""
        self._fresh[backend_name(key)] = now + FRESH_SECONDS
        for name in self.names(key):
            self._built.pop(name, None)
            self._noted.pop(name, None)
        self._ready[key] = ready
        names = {encode_name(endpoint.name) for endpoint in ready}
        self._proven[key] = {proven for proven in self._proven.get(key, ()) if proven[0] in names}

    def is_empty(self, key: Key) -> bool:
        """Whether no replica of ``key`` is ready, as far as is known."""
        return not self._ready.get(key)

    def port(self, key: Key) -> int | None:
        """The port of ``key``; None if it has none yet."""
        return self._ports.find(key)

    def publish(self, service: Service) -> bool:
        """Serve ``service``; return whether that is a change."""
        key = service.key
        self._suspended.discard(key)
        if self.services.get(key) == service:
            return False
        self.services[key] = service
        self._name(key)
        return True

    def route(self, outside: Mapping[Key, Outside]) -> None:
        """Take requests from outside as in ``outside`` from now on."""
        if outside is not self._outside:
            keys = outside.keys() | self._outside.keys()
            changed = [key for key in keys if outside.get(key) != self._outside.get(key)]
            self._outside = outside
            for key in changed:
                if key in self.services:
                    self._name(key)

    def withdraw(self, key: Key) -> bool:
        """Serve ``key`` no longer; return whether it was served."""
        self.errors.pop(key, None)
        self._drop(key)
        was_suspended = key in self._suspended
        self._suspended.discard(key)
        return self.services.pop(key, None) is not None or was_suspended

    def suspend(self, service: Service) -> bool:
        """Serve ``service`` no longer, and answer its requests; return whether that is a change."""
        key, is_new = service.key, service.key not in self._suspended
        changed = self.withdraw(key)
        if mode_of(service) == HTTP:
            self._suspended.add(key)
            return is_new
        return changed

    def list_suspended(self) -> tuple[Suspended, ...]:
        """The suspended workloads whose requests are answered, unless another program has the port."""
        bound = self._bound.get(HTTP, frozenset())
        ports = ((key, self._usable_port(backend_name(key), key, bound, live=False)) for key in self._suspended)
        return tuple(sorted(Suspended(backend_name(key), port) for key, port in ports if port is not None))

    @property
    def is_needed(self) -> bool:
        """Whether there is a workload with an address."""
        return bool(self.services or self._suspended)

    @property
    def keys_of_backends(self) -> Mapping[str, Key]:
        """The workload of each backend."""
        return self._names

    def names(self, key: Key) -> tuple[str, ...]:
        """The backends of a served workload: that of its first port, and those of others that routes lead to."""
        return self._backends.get(key, ())

    def _name(self, key: Key) -> None:
        """Make the backends of ``key`` anew."""
        self._scaled = None
        outside = self._outside.get(key)
        declared = {0: "", **dict(outside.ports)} if outside is not None else {0: ""}
        names = tuple(backend_name(key, port) for port in declared)
        if names != self.names(key):
            self._drop(key)
            self._backends[key] = names
            self._names |= dict.fromkeys(names, key)
            self._ports_of |= dict(zip(names, declared.items(), strict=True))
        for name in names:
            self._built.pop(name, None)

    def _drop(self, key: Key) -> None:
        self._ordered = self._scaled = None
        for name in self._backends.pop(key, ()):
            for table in (self._names, self._ports_of, self._built, self._noted):
                table.pop(name, None)
            self._unproven.discard(name)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload, and release its port."""
        self._ready.pop(key, None)
        self._proven.pop(key, None)
        self._ports.release(key)

    def adopt(self, config: str) -> None:
        """Learn from the configuration in force the ports, if their file was lost."""
        self._adopted = read_ports(config)

    def use_bound(self, ports: Mapping[str, frozenset[int]], listens: Set[int]) -> None:
        """Assign ``ports`` first, at which HAProxy listens already: those of each mode, also without a workload.

        It ``listens`` also at ports that are of a workload and answer for its suspension.
        """
        self._bound, self._listens = ports, listens

    def note_answers(self, live: Live) -> bool:
        """Remember the replicas that have answered: they may get any number of requests. Return whether one is new."""
        new = False
        for name in self._unproven:
            # Most have not changed since the last call.
            if (live_backend := live.get(name)) is not None and live_backend is not self._noted.get(name):
                self._noted[name] = live_backend
                if self._note(self._names[name], live_backend):
                    self._built.pop(name, None)
                    new = True
        return new

    def unproven(self, live: Live, now: float) -> set[str]:
        """The backends with a replica that has not answered yet, and with requests: now, or perhaps soon."""
        self._fresh = {name: end for name, end in self._fresh.items() if end > now}
        fresh = self._fresh.keys() if len(self._fresh) <= FEW_FRESH else ()
        busy = (name for name in self._unproven if name in live and (live[name].open or name in fresh))
        return {name for name in busy if not all(replica.proven for replica in live[name].replicas)}

    def scaled_by_requests(self) -> Mapping[str, tuple[Key, bool]]:
        """The backends whose counts decide on the number of replicas.

        Each with its workload, and whether some of its requests are no traffic. The same object until it changes.
        """
        if self._scaled is None:
            backends = ((name, key, self.services[key]) for name, key in self._names.items())
            self._scaled = {
                name: (key, bool(service.no_wake) and (self._ports_of[name][1] or service.protocol) != "tcp")
                for name, key, service in backends
                if service.scales_by_requests
            }
        return self._scaled

    def backends(self, live: Live, now: float, names: Set[str] | None = None) -> list[Backend]:
        """The backends ``names`` (None: of all workloads) that can be served, in order. ``now`` is monotonic time.

        Without scripts, no replica gets requests of one that an operator holds.
        """
        if names is not None:
            chosen = sorted(names & self._names.keys(), key=self._names.__getitem__)
        else:
            chosen = self._ordered = self._ordered or sorted(self._names, key=self._names.__getitem__)
        candidates = (self._backend(name, live.get(name), now) for name in chosen)
        return [backend for backend in candidates if backend is not None]

    def lacking(self, live: Live, now: float) -> list[Backend]:
        """The backends of served workloads that ``live`` lacks, if these are few."""
        names = self._names.keys() - live.keys()
        return self.backends(live, now, names) if 0 < len(names) <= FEW_FRESH else []

    def drain_on_hold(self) -> None:
        """Refuse the requests that an operator holds: this HAProxy has no scripts that let them wait."""
        self._drains = True
        self._built.clear()

    def holds(self, monotonic: float, epoch: float) -> dict[str, str]:
        """The backends whose requests an operator holds, each with the end of the hold in seconds of the epoch."""
        ends = {
            key: service.hold_until - monotonic
            for key, service in self.services.items()
            if service.hold_until > monotonic
        }
        # Whole seconds, rounded up: a hold never ends before its time.
        return {name: str(ceil(epoch + left)) for key, left in ends.items() for name in self.names(key)}

    def _backend(self, name: str, live: LiveBackend | None, now: float) -> Backend | None:
        """The backend ``name``: the same object until it changes. None if it cannot be served."""
        # One that the process lacks is made anew: another program may have its port by now.
        if live is not None and (built := self._built.get(name)) is not None:
            return built
        key = self._names[name]
        declared, protocol = self._ports_of[name]
        split = self.services[key].split
        # A change of the percents alone is no change of the configuration.
        service = replace(self.services[key], outside=self._outside.get(key), split=())
        if declared:
            service = replace(service, port=declared, protocol=protocol)
        bound = self._bound.get(mode_of(service), frozenset())
        if (port := self._usable_port(name, _make_port_key(key, declared), bound, live=live is not None)) is None:
            return None
        if live is not None:
            self._note(key, live)
        backend = Backend(service, port, self._servers(service, split, live, now), declared, split)
        unproven = not service.max_concurrency and any(backend_server.limit for backend_server in backend.servers)
        (self._unproven.add if unproven else self._unproven.discard)(name)
        # Its servers are those of the live process until they are known, and none while an operator holds it.
        if key in self._ready and not (self._drains and service.hold_until):
            self._built[name] = backend
        return backend

    def _note(self, key: Key, live: LiveBackend) -> bool:
        """Remember the replicas that have answered; return whether one was not known to."""
        proven = self._proven.setdefault(key, set())
        before = len(proven)
        proven |= {(name, live_server.address) for name, live_server in live.servers.items() if live_server.proven}
        return len(proven) > before

    def _servers(
        self, service: Service, split: tuple[tuple[int, int], ...], live: LiveBackend | None, now: float
    ) -> tuple[Server, ...]:
        ready = self._ready.get(service.key)
        if self._drains and service.hold_until > now:
            return ()
        if ready is None:
            # An earlier daemon found them ready. This one does not know yet, so they go on.
            adopted = live.servers.items() if live is not None else ()
            return tuple(
                Server(name, live_server.address, live_server.limit, live_server.weight)
                for name, live_server in adopted
                if name not in OWN
            )
        servers = (make_server(endpoint, service.port, 0) for endpoint in ready)
        by_name = {replica.name: replica for replica in servers if replica is not None}
        versions = {replica.name: replica.version for replica in by_name.values()}
        weights = server_weights(dict(split), versions)
        return tuple(
            replace(by_name[name], limit=self._limit(service, by_name[name]), weight=weight)
            for name, weight in weights.items()
        )

    def _limit(self, service: Service, replica: Server) -> int:
        proven = (replica.name, replica.address) in self._proven.get(service.key, ())
        return service.limit(proven=proven)

    def _usable_port(self, name: str, key: Key, bound: Set[int], *, live: bool) -> int | None:
        """The port of ``key``, whose backend is ``name``, unless another program has it."""
        self.errors.pop(key, None)
        try:
            if self._ports.find(key) is None and (adopted := self._adopted.get(name)):
                self._ports.reserve(key, adopted)
            return self._ports.usable(key, bound, served=live or self._ports.find(key) in self._listens)
        except EngineError as error:
            self.errors[key] = str(error)
            return None


def _make_port_key(key: Key, declared: int) -> Key:
    """The key of the port of this host for a port of a workload; ``declared`` is 0 for its first one."""
    return Key(key.kind, key.gvc, f"{key.name}:{declared}") if declared else key
