"""What the host engine needs on this host: a shell, /proc, memory for secrets, control groups, ports and limits."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from reconciler.checks import (
    ENTER,
    WRITE,
    Check,
    UserIdentity,
    check_read_access,
    make_ok_check,
    make_problem,
    make_warning,
)
from reconciler.engines.host.dataplane.choice import HAPROXY, choose_dataplane, proxy_directory
from reconciler.engines.host.dataplane.haproxy.config import CONFIG
from reconciler.engines.host.dataplane.haproxy.discovery import ProxyUnit, find_master
from reconciler.engines.host.dataplane.haproxy.program import OLDEST, find_program
from reconciler.engines.host.dataplane.ports import listening_ports
from reconciler.engines.host.paths import ENGINE, find_directory
from reconciler.engines.host.provisioning.files import MEMORY
from reconciler.engines.host.reading.manifest_checks import HostNeeds
from reconciler.engines.host.runtimes.plugins import runtime_of, runtime_plugin
from reconciler.planning.plan import Step
from reconciler.settings import Settings

ABOUT = "host engine"
FILES, PROCESSES = 1024, 1024
"""Lowest limits of open files and processes that suffice for the daemon."""
PRIVILEGED = 1024
"""The first port that a process without privileges may listen at."""
FULL = 0.9
"""The used part of the ports from which on there is a warning."""
_OUTGOING = "sys/net/ipv4/ip_local_port_range"


def check_workloads(
    settings: Settings,
    who: UserIdentity,
    pid: int | None,
    steps: Sequence[Step] | None = None,
    proc: Path = Path("/proc"),
) -> Iterator[Check]:
    """Check the host engine, if a location is bound to it; ``pid`` is the daemon's, None if none runs.

    ``steps`` would create all that the manifests have; None if they cannot be read.
    """
    places = sorted(name for name, bound in settings.locations.items() if bound.engine == ENGINE)
    if not places:
        return
    needs = HostNeeds(settings, steps) if steps is not None else None
    runtimes = _check_runtimes(settings, places, who, proc, needs)
    parts = (runtimes, _check_planes(settings, places, who), _check_memory(who))
    checks = [*chain.from_iterable(parts), *_check_ports(settings, proc), *_check_limits(pid, proc)]
    checks += [*_check_metrics(settings, pid, proc), *_check_exports(settings, who)]
    yield from checks
    if not checks:
        yield make_ok_check(
            ABOUT, f"{', '.join(places)}: all that the engine needs is here{_describe_proxy(settings, places)}"
        )
    yield from needs.check(who) if needs is not None else ()


def _check_planes(settings: Settings, places: list[str], who: UserIdentity) -> Iterator[Check]:
    """Check the HAProxy of the locations that use it, or could."""
    choices = {location: choose_dataplane(settings, location) for location in places}
    passed_over = [location for location, choice in choices.items() if choice.problem and choice.name != HAPROXY]
    if passed_over:
        message = f"{choices[passed_over[0]].problem}; at {', '.join(passed_over)} the daemon takes its place"
        yield make_warning(ABOUT, message, "install a newer one that was built with Lua, or set `dataplane: builtin`")
    named = [location for location, choice in choices.items() if choice.name == HAPROXY]
    program = find_program() if named else None
    where, oldest = ", ".join(named), ".".join(map(str, OLDEST))
    if program is not None and program.failure:
        message = f"{program.defect}; the endpoints of {where} stay as they are until it does"
        yield make_problem(ABOUT, message, "reinstall haproxy, or set `dataplane: builtin`")
    elif named and (program is None or not program.usable):
        text = f"HAProxy {program.text} is installed" if program is not None else "HAProxy is not installed"
        message = f"{text}, and the endpoints of {where} need {oldest} or newer"
        yield make_problem(ABOUT, message, "apt-get install haproxy, or set `dataplane: builtin`")
    elif program is not None and not program.lua:
        what = "requests do not wait for the end of a hold, nor outlast a reload"
        message = f"HAProxy {program.text} lacks Lua: at {where}, {what}"
        yield make_warning(ABOUT, message, "install a HAProxy that was built with Lua, as Debian's is")
    if program is not None and program.usable and who.uid:
        for location in named:
            ingress = settings.locations[location].ingress
            directory = proxy_directory(find_directory(settings.state, location))
            privileged = ingress is not None and min(ingress.http_port, ingress.https_port) < PRIVILEGED
            yield from check_unit(ProxyUnit(location), directory, privileged=privileged)


def check_unit(unit: ProxyUnit, directory: Path, *, privileged: bool) -> Iterator[Check]:
    """Check whether the unit of the HAProxy in ``directory`` has started it, if it is enabled; only with systemd.

    It has to be enabled if HAProxy listens at ``privileged`` ports.
    """
    if unit.is_enabled():
        # Another user may not see it.
        if os.path.exists(directory / CONFIG) and find_master(directory) is None:
            message = f"{unit.service} has not started HAProxy: the endpoints of {unit.location} do not answer"
            yield make_problem(ABOUT, message, f"see `systemctl status {unit.service}`")
    elif unit.has_systemd and privileged:
        message = f"the daemon starts the HAProxy of {unit.location} itself, which cannot listen at ports below 1024"
        yield make_warning(ABOUT, message, f"install systemd/reconciler-haproxy@.*, then {unit.advice}")


def _describe_proxy(settings: Settings, places: list[str]) -> str:
    """What serves the endpoints, if it is HAProxy somewhere."""
    named = [location for location in places if choose_dataplane(settings, location).name == HAPROXY]
    program = find_program() if named else None
    return f"; HAProxy {program.text} serves the endpoints of {', '.join(named)}" if program is not None else ""


def _check_runtimes(
    settings: Settings, places: list[str], who: UserIdentity, proc: Path, needs: HostNeeds | None
) -> Iterator[Check]:
    """Check the runtimes of ``places``, each runtime once, but for what ``needs`` does not have."""
    for name in sorted({runtime_of(settings, location) for location in places}):
        for host_problem in runtime_plugin(name).check_host(settings, proc, who.uid == os.geteuid()):
            if needs is not None and not needs.has(host_problem.concerns):
                continue
            message = f"{who.name} {host_problem.message}" if host_problem.of_user else host_problem.message
            yield (make_problem if host_problem.fatal else make_warning)(ABOUT, message, host_problem.advice)


def _check_memory(who: UserIdentity) -> Iterator[Check]:
    if not (MEMORY.is_dir() and who.may(MEMORY, WRITE | ENTER)):
        message = f"{who.name} may not write to {MEMORY}: files of mounted secrets lie on disk"
        yield make_warning(ABOUT, message, f"mount -t tmpfs -o mode=1777 tmpfs {MEMORY}")


def _check_exports(settings: Settings, who: UserIdentity) -> Iterator[Check]:
    """Check restic and the file of its password, if snapshots are exported."""
    restic = settings.snapshots.export.restic
    if restic is None:
        return
    if shutil.which("restic") is None:
        yield make_problem(ABOUT, "restic is not installed, so no snapshot is exported", "apt-get install restic")
    if (missing := check_read_access(restic.password_file, ABOUT, who)) is not None:
        yield missing


def _check_ports(settings: Settings, proc: Path) -> Iterator[Check]:
    host = settings.host
    replicas = range(host.first_port, host.last_port + 1)
    endpoints = range(host.first_service_port, host.last_service_port + 1)
    lowest, highest = _read_outgoing_ports(proc)
    listening = listening_ports(proc)
    for ours, users, first, last in (
        (replicas, "replicas", "host.firstPort", "host.lastPort"),
        (endpoints, "endpoints", "host.firstServicePort", "host.lastServicePort"),
    ):
        if _has_overlap(ours, range(lowest, highest + 1)):
            message = f"the ports {ours.start} to {ours.stop - 1} are taken for outgoing connections too"
            yield make_warning(ABOUT, message, f"set {first} and {last} outside {lowest} to {highest}")
        taken = len(listening & {*ours})
        if taken >= FULL * len(ours):
            message = f"{taken} of the {len(ours)} ports for {users} are in use"
            yield make_warning(ABOUT, message, f"move {first} and {last} further apart")
    if _has_overlap(replicas, endpoints):
        message = f"the ports {endpoints.start} to {endpoints.stop - 1} for endpoints are among those for replicas"
        advice = f"set host.firstServicePort and host.lastServicePort outside {replicas.start} to {replicas.stop - 1}"
        yield make_warning(ABOUT, message, advice)


def _check_metrics(settings: Settings, pid: int | None, proc: Path) -> Iterator[Check]:
    """Check the address for metrics: its port must be free for the daemon, and is in use if that runs."""
    host = settings.host
    address = host.metrics.address
    port = int(address.rpartition(":")[2] or 0)
    if not port:
        return
    if host.first_port <= port <= host.last_port or host.first_service_port <= port <= host.last_service_port:
        message = f"the port of host.metrics.address, {port}, is among those for replicas or endpoints"
        yield make_warning(ABOUT, message, "set a port outside of these ranges")
    if pid is None and port in listening_ports(proc):
        message = f"another program listens at port {port} of host.metrics.address"
        yield make_warning(ABOUT, message, "end it, or set another port")


def _has_overlap(one: range, other: range) -> bool:
    """Whether any port is in both, which have a step of 1."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def _read_outgoing_ports(proc: Path) -> tuple[int, int]:
    try:
        lowest, highest = (proc / _OUTGOING).read_text().split()
    except OSError:
        return 0, -1
    return int(lowest), int(highest)


def _check_limits(pid: int | None, proc: Path) -> Iterator[Check]:
    """Check the limits of the daemon, or of this process where none runs."""
    for name, label, number, least in (
        ("open files", "Max open files", resource.RLIMIT_NOFILE, FILES),
        ("processes", "Max processes", resource.RLIMIT_NPROC, PROCESSES),
    ):
        allowed = _of_daemon(proc / str(pid) / "limits", label) if pid else resource.getrlimit(number)[0]
        if allowed not in (None, resource.RLIM_INFINITY) and allowed < least:
            who = "the daemon" if pid else "a daemon started from here"
            unit = "LimitNOFILE" if number == resource.RLIMIT_NOFILE else "LimitNPROC"
            advice = f"raise it, for the unit with {unit}=: every replica takes some"
            yield make_warning(ABOUT, f"{who} may have only {allowed} {name}", advice)


def _of_daemon(path: Path, label: str) -> int | None:
    """The limit of the daemon; None if it is unlimited or unknown."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    words = next((line.removeprefix(label).split() for line in lines if line.startswith(label)), ["unlimited"])
    return int(words[0]) if words[0].isdigit() else None
