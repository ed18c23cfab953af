"""Answers that go on for as long as the client follows them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.table import LINES

SECONDS = 300.0
"""Seconds that a client may take for an answer that it does not follow."""
CHECK_SECONDS = 5.0
"""Seconds between two checks of the credential of a client that follows."""


class PartStream(Response):
    """Sends ``parts`` until they or the client end; then ``resources`` are closed.

    ``check`` raises Problem once the caller has lost the permission to follow. Without it, the answer has SECONDS.
    """

    def __init__(
        self,
        call: Call,
        parts: AsyncIterator[bytes],
        resources: contextlib.AsyncExitStack,
        check: Callable[[Call], object] | None,
        media: str = LINES,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"}, media_type=media)
        del self.headers["content-length"]
        self._call = call
        self._parts = parts
        self._resources = resources
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        async with self._resources:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD" or await self._send_parts(receive, send):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_parts(self, receive: Receive, send: Send) -> bool:
        """Whether the answer is complete; the server closes the connection of one that is not, as the client sees."""
        passing = asyncio.create_task(self._pass_on(send))
        work: list[asyncio.Task[Any]] = [
            passing,
            *(asyncio.create_task(coroutine) for coroutine in (_await_disconnect(receive), self._expire())),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        if passing in done:
            passing.result()  # raises what ended the parts
        return passing in done or self._check is not None

    async def _pass_on(self, send: Send) -> None:
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})

    async def _expire(self) -> None:
        """Return once the stream has to end: after its time, or when the credential is no longer good."""
        if self._check is None:
            await asyncio.sleep(SECONDS)
            return
        with contextlib.suppress(Problem):
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                self._call.act_as(await self._call.api.authenticator.caller(self._call.request))
                self._check(self._call)


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
