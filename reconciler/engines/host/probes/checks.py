"""Ask a container how it is, once, in the form that its probe has: HTTP, TCP, gRPC or a program inside it."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

from reconciler.engines.host.probes.grpc import check
from reconciler.engines.host.probes.http import HOST, ProbeError, get
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult
from reconciler.engines.host.spec import ContainerSpec
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Command, Probe, Target

LATE = 0.5
"""Seconds after its time by which a wait has to end that says something about the container."""

SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EADDRNOTAVAIL})
"""Errors of this host, not of the container."""


class ProbeResult(msgspec.Struct, frozen=True):
    """Whether all is well, None where this host could not ask.

    ``message`` says what is wrong in a few words, and never what the container wrote.
    """

    ok: bool | None
    message: str = ""


class ExecRuntime(Protocol):
    """The part of a runtime that a probe needs."""

    async def exec(self, place: ContainerId, argv: tuple[str, ...], timeout: float) -> ExecResult:
        """As Runtime.exec."""


class ProbeTarget(msgspec.Struct, frozen=True):
    """Whom to ask. ``ports`` maps a declared port to the one that the replica was given."""

    place: ContainerId
    container: ContainerSpec
    ports: Mapping[int, int]


async def run_probe(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> ProbeResult:
    """Run ``probe`` once (docs/platform/workload.md#probes); no answer in its time is one too. Raises nothing.

    What is short on this host (files, memory, ports) and a runtime that cannot run the program say nothing about the
    container. Neither does an answer that is missing where the wait ended much too late: this daemon was held up.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answer = await _answer(runtime, asked, probe)
    if answer.message == _silence(probe) and loop.time() - begun > probe.timeout_seconds + LATE:
        return ProbeResult(None, "this host was too busy to ask")
    return answer


async def _answer(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> ProbeResult:
    try:
        async with asyncio.timeout(None if probe.exec else probe.timeout_seconds):
            fault = await _fault(runtime, asked, probe)
            return ProbeResult(not fault, fault)
    except TimeoutError:
        return ProbeResult(False, _silence(probe))
    except ProbeError as error:
        return ProbeResult(False, str(error))
    except EngineError as error:
        return ProbeResult(None, f"not asked: {error.reason}")
    except ssl.SSLError as error:
        return ProbeResult(False, f"TLS failed: {(error.reason or 'unknown').lower().replace('_', ' ')}")
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else "no connection"
        return ProbeResult(None if error.errno in SHORT else False, why)


async def _fault(runtime: ExecRuntime, asked: ProbeTarget, probe: Probe) -> str:
    """What is wrong; "" where nothing is."""
    if probe.exec:
        return await _executed(runtime, asked.place, probe.exec, probe)
    if probe.http_get:
        status = await get(probe.http_get, _port(asked, probe.http_get), set(asked.ports.values()))
        return "" if 200 <= status < 400 else f"HTTP {status}"
    if probe.grpc:
        health = await check(_port(asked, probe.grpc))
        return "" if health == "SERVING" else f"gRPC status {health}"
    _, writer = await asyncio.open_connection(HOST, _port(asked, probe.tcp_socket or Target()))
    writer.close()
    return ""


async def _executed(runtime: ExecRuntime, place: ContainerId, command: Command, probe: Probe) -> str:
    executed = await runtime.exec(place, command.command, probe.timeout_seconds)
    if executed.timed_out:
        return _silence(probe)
    return f"exit code {executed.code}" if executed.code else ""


def _silence(probe: Probe) -> str:
    return f"no answer in {probe.timeout_seconds} s"


def _port(asked: ProbeTarget, target: Target) -> int:
    """Where to ask: at the port that stands for the one of the probe, which is the container's first where it has none.

    A port that the container does not declare is one that it opens by itself.
    """
    declared = target.port or next(iter(asked.container.ports), 0)
    if not declared:
        raise ProbeError("no port to ask")
    return asked.ports.get(declared, declared)
