"""Starts one container exactly once, even if the service fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from reconciler.engines.host.runtimes.podman.api.answers import Created, Inspected, PodmanError, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient
from reconciler.engines.host.runtimes.podman.labels import new_nonce
from reconciler.engines.host.runtimes.podman.spec import Surroundings, Ulimits
from reconciler.engines.host.runtimes.podman.sweep import Sweeper
from reconciler.errors import EngineError

AT_ONCE = 6
"""Containers that start at the same time; more only wait for the processor."""
_ATTEMPTS = 4
"""Starts whose replies may be lost in a row: each time the service is restarted in the middle of one."""
_QUESTIONS, _PAUSE = 40, 0.05
_ENDING = "no such process"
"""Podman's name for a failure to read what the kernel tells of a process."""
_MODEST = Ulimits(4096, 4096)
"""Limits for a service that may not even set its own hard limits, or does not show them."""

Describe = Callable[[Surroundings, str], dict[str, Any]]
"""Makes the request for a container from the surroundings and a nonce."""
Prepare = Callable[[str], Awaitable[None]]
"""Called with the ID of the container between its create and its start."""


class Starter:
    """Creates and starts containers; for each start that fails, nothing is left."""

    def __init__(self, client: PodmanClient, sweeper: Sweeper, around: Surroundings) -> None:
        self._client = client
        self._sweeper = sweeper
        self._around = around
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, describe: Describe, prepare: Prepare | None = None) -> Inspected:
        """Create and start a container, and return it. Raises EngineError."""
        async with self._turns:
            for _ in range(_ATTEMPTS):
                nonce = new_nonce()
                body = describe(self._around, nonce)
                try:
                    return await self._start(body, prepare)
                except EngineError as error:
                    last = error
                except Exception:
                    # A bug does not leave a container that never runs.
                    with suppress(EngineError):
                        await self._sweeper.resolve_start(nonce, body["name"], lost=False)
                    raise
                lost = isinstance(last, PodmanError) and last.lost
                listed = await self._sweeper.resolve_start(nonce, body["name"], lost=lost)
                if listed is not None:
                    return await self.inspect(listed.id)
                if not lost and not self._adapts(last):
                    break
            raise last

    async def inspect(self, container: str) -> Inspected:
        """The container in detail. Raises PodmanError.

        Podman fails to show a container that ends at this moment. It is asked again: the container did run.
        """
        for _ in range(_QUESTIONS):
            try:
                return decode_answer(await self._client.get(f"containers/{container}/json"), Inspected)
            except PodmanError as error:
                last = error
                if error.cause != _ENDING:
                    break
            await asyncio.sleep(_PAUSE)
        raise last

    async def _start(self, body: dict[str, Any], prepare: Prepare | None) -> Inspected:
        container = decode_answer(await self._client.post("containers/create", body), Created).id
        if prepare is not None:
            await prepare(container)
        await self._client.post(f"containers/{container}/start")
        return await self.inspect(container)

    def _adapts(self, error: EngineError) -> bool:
        """Whether a retry has lower limits, if the service may not set those that it reports."""
        before = self._around.ulimits
        if "setting rlimit" not in str(error) or before == _MODEST:
            return False
        self._around = msgspec.structs.replace(self._around, ulimits=_MODEST)
        return True
