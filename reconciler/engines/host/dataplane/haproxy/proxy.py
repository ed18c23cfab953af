"""The live HAProxy of a location: reads its state, and brings it to what is wanted by its socket or a reload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from reconciler.clock import Clock
from reconciler.engines.host.dataplane.haproxy.config import (
    HOLDS,
    Backend,
    ProxyOptions,
    backend_name,
    render,
    structure,
)
from reconciler.engines.host.dataplane.haproxy.live import LiveBackend, commands, hold_commands, read_holds, read_live
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.errors import EngineError
from reconciler.reasons import Reason

FEW = 50
"""With fewer workloads, reading their state one by one is faster than reading everything."""

RELOAD_SECONDS = 1.0
"""The least time between two reloads, so that many new workloads cost one."""

REFUSED_SECONDS = 30.0
"""Seconds until a refused configuration is checked again."""

SILENT_READS = 2
"""Reads without an answer after which HAProxy is ended and started again."""


class _Refusal(NamedTuple):
    """The configuration that was refused last, when and why."""

    digest: str
    at: float
    message: str


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
        self._master = master
        self._options = ProxyOptions("")
        self._clock = clock
        self._digest = ""
        self._holds: dict[str, int] = {}
        self._written = ""
        self._loaded_at = float("-inf")
        self._silent = 0

    def open(self, options: ProxyOptions) -> None:
        """Render with ``options`` from now on."""
        self._options = options

    async def read(self) -> None:
        """Read the whole state. Raises EngineError if HAProxy does not answer."""
        if not self._master.running:
            self._lost = self._lost or bool(self.live)
            self.live, self._digest = {}, ""
            return
        try:
            answer = await self._master.ask(f"@1 show info;@1 show map ./{HOLDS};@1 show stat")
        except EngineError:
            await self._wake_up()
            raise
        self._silent = 0
        self._master.trim_output()
        facts, _, counts = answer.partition("# pxname")
        lines = (line.partition(":") for line in facts.splitlines())
        self._digest = next((value.strip() for name, _, value in lines if name.lower() == "description"), "")
        self._holds = read_holds(facts)
        self.live = _parsed(f"# pxname{counts}") if counts else {}
        self.read_at = self._clock.monotonic()

    def take_lost(self) -> bool:
        """Whether the process had ended by itself and serves again now, since the last call."""
        lost = self._lost and bool(self.live)
        self._lost = self._lost and not lost
        return lost

    async def read_some(self, names: Collection[str]) -> None:
        """Read the servers of the backends ``names`` again. Raises EngineError."""
        if len(names) > FEW:
            await self.read()
            return
        answer = await self._master.ask(";".join(f"@1 show stat {name} 6 -1" for name in names))
        for name, found in _parsed(answer).items():
            if name in self.live:
                self.live[name] = found

    async def bring(self, backends: Sequence[Backend], holds: Mapping[str, int]) -> None:
        """Bring the process to ``backends`` and ``holds``: by a start, a reload, or commands. Raises EngineError.

        ``holds`` maps the backends that an operator holds to the end of the hold.
        """
        self.due = None
        digest = structure(self._options, backends)
        if not backends:
            self._end()
            return
        self._master.write_holds(holds)
        if not self._master.running or self._digest != digest:
            self.due = self._loaded_at + RELOAD_SECONDS
            if self._clock.monotonic() >= self.due:
                await self._load(render(self._options, backends), digest)
        else:
            self._write(render(self._options, backends))
        if self._options.lua and self.live:
            await self._master.send(hold_commands(holds, self._holds))
        await self.send(backends)

    async def send(self, backends: Sequence[Backend]) -> None:
        """Send what brings the servers of ``backends`` to what is wanted. Raises EngineError."""
        todo = list(commands(backends, self.live))
        if todo:
            await self._master.send(todo)
            await self.read_some({backend_name(each.service.key) for each in backends})

    async def _load(self, text: str, digest: str) -> None:
        self._loaded_at, self.due = self._clock.monotonic(), None
        await self._check(text, digest)
        self._written = text
        if self._master.running:
            await self._master.reload(digest)
        else:
            await self._master.start()
        await self.read()

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

    def _end(self) -> None:
        self._master.stop()
        self.live, self._digest = {}, ""

    async def _wake_up(self) -> None:
        """Let it open a lost socket again; end a process that hangs."""
        if not self._master.has_socket:
            await self._master.reload("")
            return
        self._silent += 1
        if self._silent >= SILENT_READS:
            self._silent = 0
            self._master.kill()


def _parsed(text: str) -> dict[str, LiveBackend]:
    try:
        return read_live(text)
    except ValueError:
        raise EngineError("HAProxy shows its state in an unknown form", reason=Reason.PROXY_FAILED) from None
