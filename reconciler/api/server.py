"""Serves the application on the sockets that the daemon opened, until the daemon ends."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import ssl
import sys
from contextlib import suppress
from functools import partial

from uvicorn.config import Config

from reconciler import logs
from reconciler.api.app import make_app
from reconciler.api.connections import ClientConnection, Connections
from reconciler.api.problems import MOST_BODY
from reconciler.api.proxies.protocol import ProxiedServer
from reconciler.api.proxies.trusted import TrustedProxies
from reconciler.api.service import Api
from reconciler.clock import SystemClock
from reconciler.daemon.api_process import BACKLOG, decode_start
from reconciler.daemon.measurements import Measurements, decode_beat
from reconciler.errors import ReconcilerError, RecordsError
from reconciler.logs import log
from reconciler.settings import Settings, TlsSettings

ALIVE_SECONDS = 10.0
"""Seconds after the daemon's last beat from which it counts as hanging."""
RELOAD_SECONDS = 5.0
"""Seconds between two checks of the certificate's files."""
RELEASE_SECONDS = 60.0
"""Seconds between two checks for events of changes whose request had no end."""
_KEEP_ALIVE_SECONDS = 30
_DRAIN_SECONDS = 3.0
_DESCRIPTORS = 4096


async def serve_api() -> None:
    """Read the settings from standard input, and serve until it ends."""
    _raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the daemon closes the input to end it
    messages = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(messages), sys.stdin)
    if not (settings := await messages.readline()):
        return  # the daemon ended just after it started this
    start = decode_start(settings)
    _configure_logging(start.settings)
    beat, measured = loop.time(), Measurements()
    clock = SystemClock(start.settings.state)
    api = Api(start.settings, clock, lambda: loop.time() - beat < ALIVE_SECONDS, lambda: measured, start.refusal)
    config, state = _make_config(api), Connections()
    servers: list[asyncio.Server | ProxiedServer] = [await _start_server(config, state, start.unix, None)]
    upkeep = [asyncio.create_task(_release_events(api), name="events of earlier changes")]
    if start.tcp >= 0:
        tls = start.settings.api.tls if start.settings.api is not None else None
        context = _make_tls_context(tls) if tls is not None else None
        if start.settings.api is not None and start.settings.api.proxy_protocol:
            servers.append(_listen_proxied(config, state, start.tcp, context, api.proxies))
        else:
            servers.append(await _start_server(config, state, start.tcp, context))
        if context is not None and tls is not None:
            upkeep.append(asyncio.create_task(_renew_certificate(context, tls), name="certificates"))
    try:
        # A line without its end is what a killed daemon left.
        while (line := await messages.readline()).endswith(b"\n"):
            beat, measured = loop.time(), decode_beat(line)
            with suppress(RecordsError):  # they stay counted; a full disk is reported by whatever else needs it
                api.refusals.flush()
                api.end_former_lives()
    finally:
        for task in upkeep:
            task.cancel()
        for server in servers:
            server.close()
        api.changes.close()
        await _drain_requests(state)
        api.close()


def _configure_logging(settings: Settings) -> None:
    logs.configure_logging(settings.log.format, settings.log.level)
    # It writes a line of plain text for each malformed request, as many as a client likes.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


def _make_config(api: Api) -> Config:
    # The pong of a client waits behind its messages while a program does not read, so its absence ends nothing.
    config = Config(
        make_app(api),
        lifespan="off",
        log_config=None,
        access_log=False,
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ws_max_size=MOST_BODY,
        ws_per_message_deflate=False,
        ws_ping_timeout=None,
    )
    config.load()
    return config


async def _start_server(
    config: Config, state: Connections, descriptor: int, context: ssl.SSLContext | None
) -> asyncio.Server:
    """A server on the listening socket ``descriptor``."""
    loop = asyncio.get_running_loop()
    listener = socket.socket(fileno=descriptor)

    def connect() -> ClientConnection:
        return ClientConnection(config, state, {})

    return await loop.create_server(connect, sock=listener, ssl=context, backlog=BACKLOG)


def _listen_proxied(
    config: Config, state: Connections, descriptor: int, context: ssl.SSLContext | None, proxies: TrustedProxies
) -> ProxiedServer:
    """A server on the listening socket ``descriptor``, to which proxies send the address of the client."""

    def connect(address: str) -> ClientConnection:
        return ClientConnection(config, state, {"forwarded": address})

    return ProxiedServer(socket.socket(fileno=descriptor), connect, proxies.trusts, context)


def _make_tls_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.certificate, tls.key)
    return context


async def _renew_certificate(context: ssl.SSLContext, tls: TlsSettings) -> None:
    """Use a new certificate for new connections once its files have changed; an invalid one is logged, and not used."""
    used = _read_change_times(tls)
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        current = _read_change_times(tls)
        if current == used:
            continue
        used = current
        try:
            _make_tls_context(tls)  # a broken file must not reach the context in use
            context.load_cert_chain(tls.certificate, tls.key)
            log().info("api", message="the certificate was read again")
        except OSError as error:
            log().warning("api", message=f"the new certificate is not used: {error}")


def _read_change_times(tls: TlsSettings) -> tuple[int, ...]:
    """When the files of the certificate changed; 0 for one that is missing."""
    mtimes = []
    for path in (tls.certificate, tls.key):
        try:
            mtimes.append(path.stat().st_mtime_ns)
        except OSError:
            mtimes.append(0)
    return tuple(mtimes)


async def _release_events(api: Api) -> None:
    """Append the events of changes whose request had no end: those of an earlier process, then every minute."""
    while True:
        try:
            if not api.reader.records.outbox.is_empty():
                from reconciler.changes.outbox import release_events  # only writes load the reader of Git

                release = partial(release_events, api.settings, api.writers, api.clock)
                await asyncio.get_running_loop().run_in_executor(api.git_threads, release)
        except ReconcilerError as error:
            log().warning("api", message=f"no events of earlier changes yet: {error}")
        await asyncio.sleep(RELEASE_SECONDS)


async def _drain_requests(state: Connections) -> None:
    """Let the requests in progress end, within bounds."""
    if state.tasks:
        await asyncio.wait(set(state.tasks), timeout=_DRAIN_SECONDS)
    for connection in list(state.connections):
        connection.transport.abort()


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def main() -> None:
    """Run the process of the API."""
    try:
        asyncio.run(serve_api())
    except KeyboardInterrupt:
        log().info("api", message="interrupted")
