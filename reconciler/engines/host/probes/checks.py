"""Runs a probe of a container once, in its form: HTTP, TCP, gRPC, or a command in the container."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

from reconciler.engines.host.probes.connection import connect_to_port
from reconciler.engines.host.probes.grpc import check_health
from reconciler.engines.host.probes.http import fetch_status
from reconciler.engines.host.probes.response import CLOSED, ProbeError
from reconciler.engines.host.runtimes.connections import find_listening_ports
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Command, Probe, Target

LATE = 0.5
"""Seconds after a timeout within which the wait must end; a later end does not count against the container."""

SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EADDRNOTAVAIL})
"""Errors that come from this host and not from the container."""


_MOST_PORTS = 5
"""The most ports that a message lists."""
_UNANSWERED = (os.strerror(errno.ECONNREFUSED).lower(), CLOSED)
"""The messages of probes that no program may have seen: what forwards to a container accepts, and then closes."""


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe; ``ok`` is None if this host could not run it.

    ``message`` describes the problem in a few words, and never contains output of the container.
    """

    ok: bool | None
    message: str = ""


class ExecRuntime(Protocol):
    """The part of a runtime that a probe needs."""

    async def exec(self, container_id: ContainerId, argv: tuple[str, ...], timeout: float) -> ExecResult:
        """As Runtime.exec."""

    def find_processes(self, container_id: ContainerId) -> frozenset[int]:
        """As Runtime.find_processes."""


class ProbeTarget(msgspec.Struct, frozen=True):
    """The container to probe. ``ports`` maps a declared port to the replica's assigned port."""

    place: ContainerId
    container: ContainerSpec
    ports: Mapping[int, int]


async def run_probe(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> ProbeResult:
    """Run ``probe`` once (docs/platform/workload.md#probes); a timeout is a result as well. Raises nothing.

    A shortage on this host (files, memory, ports) or a runtime that cannot run the program is no result for the
    container. Neither is a timeout that ended much too late, because then this daemon was delayed.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answer = await _run_probe(runtime, asked, probe)
    if answer.message == _describe_timeout(probe) and loop.time() - begun > probe.timeout_seconds + LATE:
        return ProbeResult(None, "this host was too busy to ask")
    return answer


async def _run_probe(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> ProbeResult:
    try:
        async with asyncio.timeout(None if probe.exec else probe.timeout_seconds):
            fault = await _find_fault(runtime, asked, probe)
            return ProbeResult(not fault, fault)
    except TimeoutError:
        return ProbeResult(False, _describe_timeout(probe))
    except ProbeError as error:
        return ProbeResult(False, str(error))
    except EngineError as error:
        return ProbeResult(None, f"not asked: {error.reason}")
    except ssl.SSLError as error:
        return ProbeResult(False, f"TLS failed: {(error.reason or 'unknown').lower().replace('_', ' ')}")
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else "no connection"
        return ProbeResult(None if error.errno in SHORT else False, why)


async def explain_failure(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe, message: str) -> str:
    """``message`` of a failed probe, with the ports on which the container listens where none answered. Slow."""
    target = probe.http_get or probe.grpc or probe.tcp_socket
    if target is None or message not in _UNANSWERED:
        return message
    declared = target.port or next(iter(asked.container.ports), 0)
    return await asyncio.to_thread(describe_ports, runtime, asked, declared) or message


def describe_ports(runtime: ExecRuntime, asked: ProbeTarget, declared: int) -> str:
    """``nothing listens on 20528 (PORT); the program listens on 8080``; "" if it does, or is out of sight. Blocks."""
    listening = find_listening_ports(runtime.find_processes(asked.place))
    if listening is None:
        return ""
    port = declared if listening.is_apart else asked.ports.get(declared, declared)
    if port in listening.ports:
        return ""
    ports = asked.container.ports
    variable = "PORT" if declared in ports[:1] else f"PORT_{declared}"
    named = f" ({variable})" if declared in ports else ""
    others = sorted(listening.ports)
    listed = ", ".join(map(str, others[:_MOST_PORTS])) + (", …" if others[_MOST_PORTS:] else "")
    return f"nothing listens on {port}{named}; the program listens on {listed or 'no port'}"


async def _find_fault(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> str:
    """The problem; "" if there is none."""
    if probe.exec:
        return await _run_command(runtime, asked.place, probe.exec, probe)
    if probe.http_get:
        status = await fetch_status(probe.http_get, _select_port(asked, probe.http_get), set(asked.ports.values()))
        return "" if 200 <= status < 400 else f"HTTP {status}"
    if probe.grpc:
        health = await check_health(_select_port(asked, probe.grpc))
        return "" if health == "SERVING" else f"gRPC status {health}"
    (await connect_to_port(_select_port(asked, probe.tcp_socket or Target()))).close()
    return ""


async def _run_command(runtime: ExecRuntime, container_id: ContainerId, command: Command, probe: Probe) -> str:
    executed = await runtime.exec(container_id, command.command, probe.timeout_seconds)
    if executed.timed_out:
        return _describe_timeout(probe)
    return f"exit code {executed.code}" if executed.code else ""


def _describe_timeout(probe: Probe) -> str:
    return f"no answer in {probe.timeout_seconds} s"


def _select_port(asked: ProbeTarget, target: Target) -> int:
    """The port to connect to: the assigned one for the probe's port, or for the container's first port.

    A port that the container does not declare is used as it is.
    """
    declared = target.port or next(iter(asked.container.ports), 0)
    if not declared:
        raise ProbeError("no port to ask")
    return asked.ports.get(declared, declared)
