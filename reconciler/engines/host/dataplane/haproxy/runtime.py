"""Backends that come and go while HAProxy runs, from version 3.4 on: what needs no reload, and the commands for it.

Those of tcp ports leave like that, but come by a reload: they have lines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import HTTP, TCP, Backend, ProxyOptions, Suspended
from reconciler.engines.host.dataplane.haproxy.live import LiveBackend, list_commands, take_out
from reconciler.engines.host.dataplane.haproxy.rendering.profiles import profile_of, usual_profile
from reconciler.engines.host.dataplane.haproxy.rendering.render import LoadedConfig, Shape, shape_of

SPARE = 16
"""The least number of ports without a workload at which HAProxy listens after a reload, for workloads to come."""
SHARE = 4
"""With many workloads it is this part of their number, so that reloads become rarer."""

RELOAD_SECONDS = 1.0
"""The least time between two reloads, so that many new workloads cost one."""

FEW_WORKERS = 3
"""With more former workers, the time between two reloads grows."""

Shapes = Mapping[str, Shape]
FindPorts = Callable[[int, Collection[int]], list[int]]
"""Takes a number and the ports that are open already; returns so many ports without a workload, these first."""


class Needs(NamedTuple):
    """What backends need of a reload: ports by mode, profiles; and what no command changes in them."""

    ports: Mapping[str, frozenset[int]]
    profiles: Mapping[str, str]
    shapes: Shapes


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


def list_add_commands(
    options: ProxyOptions, loaded: LoadedConfig, backends: Iterable[Backend], live: Mapping[str, LiveBackend]
) -> Iterator[str]:
    """The commands that add the backends which ``live`` lacks, with their servers, as far as no reload is needed."""
    for backend in backends if options.runtime else ():
        name, shape = backend.name, shape_of(options, backend)
        loadable = shape.profile in loaded.profiles and backend.port in loaded.ports.get(backend.mode, ())
        if name not in live and loadable and not shape.lines:
            yield f"add backend {name} from {shape.profile}"
            yield from list_commands((backend,), {name: LiveBackend(0, 0, 0, {}, published=False)})


def list_remove_commands(name: str, live: LiveBackend) -> Iterator[str]:
    """The commands that remove a backend, as far as its open requests permit."""
    if live.published:
        yield f"unpublish backend {name}"
    for server, live_server in sorted(live.servers.items()):
        yield from take_out(f"{name}/{server}", live_server)
    if not live.open:
        yield f"del backend {name}"


def _has_same_ports(left: Mapping[str, frozenset[int]], right: Mapping[str, frozenset[int]]) -> bool:
    return all(left.get(mode, frozenset()) == right.get(mode, frozenset()) for mode in (HTTP, TCP))


def reload_pause(former_workers: int) -> float:
    """The least seconds between two reloads, while so many former workers still have connections.

    HAProxy ends the oldest one when there are too many, and cuts off its WebSockets and streams.
    """
    return RELOAD_SECONDS * max(1, former_workers + 1 - FEW_WORKERS)
