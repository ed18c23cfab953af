"""The configuration file of a location: what its process was loaded with, and what is wanted in its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import HTTP, SUSPENDED, TCP, Backend, ProxyOptions, Suspended
from reconciler.engines.host.dataplane.haproxy.live import Live
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.rendering.profiles import profile_of, usual_profile
from reconciler.engines.host.dataplane.haproxy.rendering.render import (
    FileLayout,
    Frontends,
    LoadedConfig,
    Shape,
    compute_structure_digest,
    read_digest,
    read_loaded,
    read_shapes,
    render_config,
    shape_of,
)
from reconciler.engines.host.dataplane.protocol import Service
from reconciler.errors import EngineError
from reconciler.reasons import Reason

SPARE = 16
"""The least number of ports without a workload at which HAProxy listens after a reload, for workloads to come."""
SHARE = 4
"""With many workloads it is this part of their number, so that reloads become rarer."""

REFUSED_SECONDS = 30.0
"""Seconds until a refused configuration is checked again."""


Shapes = Mapping[str, Shape]
FindPorts = Callable[[int, Collection[int]], list[int]]
"""Takes a number and the ports that are open already; returns so many ports without a workload, these first."""


class Needs(NamedTuple):
    """What backends need of a reload: ports by mode, profiles; and what no command changes in them."""

    ports: Mapping[str, frozenset[int]]
    profiles: Mapping[str, str]
    shapes: Shapes


class ConfigPlan(NamedTuple):
    """What is wanted: the backends, with what they need, and all else of the file.

    ``digest`` is of what only a reload can change, ``ports`` maps ports to backends.
    """

    layout: FileLayout
    backends: Sequence[Backend]
    needs: Needs
    digest: str
    ports: Mapping[str, str]


class _Refusal(NamedTuple):
    """The configuration that was refused last, when and why."""

    digest: str
    at: float
    message: str


class _Part(NamedTuple):
    """What the needs of a backend come from."""

    service: Service
    port: int
    split: bool


class ConfigFile:
    """The file that ``master`` has accepted: ``loaded`` is what a process has that started with it, with ``digest``."""

    def __init__(self, master: Master) -> None:
        self.loaded = LoadedConfig()
        self.digest = ""
        self._master = master
        self._options = ProxyOptions("")
        self._find: FindPorts = lambda _count, usable: list(usable)
        self._shapes: dict[str, Shape] = {}
        self._lacks = False
        self._suspect = False
        self._refused: _Refusal | None = None
        self._parts: list[_Part] = []
        self._seen: list[Backend] = []
        self._suspended: tuple[Suspended, ...] = ()
        self._needed: tuple[Needs, Mapping[str, str]] | None = None
        self._planned: ConfigPlan | None = None
        self._written: tuple[str, Sequence[Backend]] = ("", ())

    def open(self, options: ProxyOptions, find: FindPorts) -> None:
        """Render with ``options`` from now on, and go on from the file of an earlier daemon."""
        text = self._master.config()
        self._options, self._find = options, find
        self.loaded, self.digest, self._shapes = read_loaded(text), read_digest(text), read_shapes(text)
        self._needed = self._planned = None

    def plan(
        self,
        backends: Sequence[Backend],
        suspended: tuple[Suspended, ...],
        frontends: Frontends,
        live: Live | None,
    ) -> ConfigPlan:
        """What to bring the process to, which has the backends ``live``; None if it does not run."""
        needs, ports = self._needs(backends, suspended)
        layout = FileLayout(self._options, self._next_load(needs, live), frontends)
        planned = self._planned
        if planned is None or planned.layout != layout or planned.needs is not needs:
            digest = compute_structure_digest(layout, backends)
            planned = ConfigPlan(layout, backends, needs, digest, ports)
        # Servers are no part of the digest, so they may have changed without it.
        self._planned = planned._replace(backends=backends)
        return self._planned

    def write(self, plan: ConfigPlan) -> None:
        """Write ``plan``, which a process has got without a reload. Raises EngineError."""
        if self._written != (plan.digest, plan.backends):
            self._master.replace_config(render_config(plan.layout, plan.backends))
            self._written = plan.digest, plan.backends

    async def accept(self, plan: ConfigPlan, now: float) -> None:
        """Write ``plan`` if HAProxy accepts it; one that it refused is checked again only after a while.

        Raises EngineError.
        """
        refused = self._refused
        if refused is not None and refused.digest == plan.digest and now < refused.at + REFUSED_SECONDS:
            raise EngineError(refused.message, reason=Reason.PROXY_CONFIG_REFUSED)
        try:
            await self._master.check_config(render_config(plan.layout, plan.backends))
        except EngineError as error:
            self._refused = _Refusal(plan.digest, now, str(error))
            raise
        self._refused, self._lacks, self._suspect = None, False, False
        self.loaded, self.digest = plan.layout.loaded, plan.digest
        self._shapes, self._written = dict(plan.needs.shapes), (plan.digest, plan.backends)

    def note_introduced(self, backends: Sequence[Backend]) -> None:
        """Note that the process has ``backends`` now, before they are in a plan."""
        self._shapes |= {backend.name: shape_of(self._options, backend) for backend in backends}

    def note_added(self, plan: ConfigPlan, live: Live) -> bool:
        """Note which backends the process has now; return whether it refused one, so that a reload is needed."""
        shapes = plan.needs.shapes
        self._shapes = {name: shape for name, shape in self._shapes.items() if name in live} | {
            name: shape for name, shape in shapes.items() if name in live and name not in self._shapes
        }
        can = needs_no_reload(self._options, self.loaded, plan.needs) and not list_changed_backends(
            live, self._shapes, shapes
        )
        self._lacks = can and not shapes.keys() <= live.keys()
        return self._lacks

    def suspect(self) -> None:
        """Take other ports for workloads to come the next time: a program may have taken one of them."""
        self._suspect = True

    def _next_load(self, needs: Needs, live: Live | None) -> LoadedConfig:
        if live is not None and not self._lacks and not self._suspect:
            same = not self._options.runtime or not list_changed_backends(live, self._shapes, needs.shapes)
            if same and needs_no_reload(self._options, self.loaded, needs):
                return self.loaded
        former = self.loaded if live is not None and not self._suspect else LoadedConfig(count=self.loaded.count)
        return next_load(self._options, former, needs, self._find)

    def _needs(self, backends: Sequence[Backend], suspended: tuple[Suspended, ...]) -> tuple[Needs, Mapping[str, str]]:
        """What ``backends`` and ``suspended`` need, and their ports; the same object until they change."""
        if suspended != self._suspended:
            self._suspended, self._needed = suspended, None
        if self._needed is not None and (backends is self._seen or list(backends) == self._seen):
            # Mostly the same objects, which are compared at once.
            return self._needed
        self._seen = list(backends)
        parts = [_Part(backend.service, backend.port, bool(backend.split)) for backend in backends]
        if self._needed is None or parts != self._parts:
            self._parts = parts
            ports = {f"{backend.port}": backend.name for backend in backends}
            # Requests from outside come by the name.
            ports |= {key: SUSPENDED for workload in suspended for key in (f"{workload.port}", workload.name)}
            self._needed = needs_of(self._options, backends, suspended), ports
        return self._needed


def needs_of(options: ProxyOptions, backends: Iterable[Backend], suspended: Iterable[Suspended] = ()) -> Needs:
    """What ``backends`` need, and what answers for ``suspended`` workloads."""
    backend_list = list(backends)
    ports = {mode: frozenset(backend.port for backend in backend_list if backend.mode == mode) for mode in (HTTP, TCP)}
    ports[HTTP] |= {workload.port for workload in suspended}
    profiles = dict({profile_of(options, backend.service) for backend in backend_list})
    return Needs(ports, profiles, {backend.name: shape_of(options, backend) for backend in backend_list})


def needs_no_reload(options: ProxyOptions, loaded: LoadedConfig, needs: Needs) -> bool:
    """Whether a process that has ``loaded`` can serve ``needs`` without a reload, if its backends are the same."""
    if not options.runtime:
        return _has_same_ports(loaded.ports, needs.ports) and dict(loaded.profiles) == needs.profiles
    open_ports = all(ports <= loaded.ports.get(mode, frozenset()) for mode, ports in needs.ports.items())
    return open_ports and needs.profiles.items() <= loaded.profiles.items()


def list_changed_backends(live: Collection[str], current: Shapes, desired: Shapes) -> list[str]:
    """The backends that only a reload can bring to what is wanted."""
    differ = (name for name, shape in desired.items() if (current.get(name) != shape if name in live else shape.lines))
    return sorted(differ)


def next_load(options: ProxyOptions, loaded: LoadedConfig, needs: Needs, find: FindPorts) -> LoadedConfig:
    """What to load so that ``needs`` can be served, and more workloads like them."""
    if not options.runtime:
        return LoadedConfig(needs.ports, needs.profiles)
    profiles = dict([usual_profile(options)]) | dict(needs.profiles)
    ports, taken = needs.ports[HTTP], frozenset().union(*needs.ports.values())
    usable = loaded.ports.get(HTTP, frozenset()) - taken
    spare = frozenset(find(max(SPARE, len(ports) // SHARE), usable)) - taken
    return LoadedConfig({**needs.ports, HTTP: ports | spare}, profiles, loaded.count + 1)


def _has_same_ports(left: Mapping[str, frozenset[int]], right: Mapping[str, frozenset[int]]) -> bool:
    return all(left.get(mode, frozenset()) == right.get(mode, frozenset()) for mode in (HTTP, TCP))
