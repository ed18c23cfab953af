"""Programs in containers over a WebSocket, in the frames of Kubernetes' ``v5.channel.k8s.io``.

Each message is binary: a byte for the channel, then the content. 0, 1 and 2 are the streams of the program; 3 is its
end, a `Status` of Kubernetes; 4 the size of the terminal; 255 closes the channel that the second byte names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.table import WEBSOCKET, Operation
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records

if TYPE_CHECKING:
    from reconciler.terminal.session import ExecSession, TerminalSize

PROTOCOL = "v5.channel.k8s.io"
STDIN, STATUS, RESIZE, CLOSE = 0, 3, 4, 255
CHECK_SECONDS = 5.0
"""Seconds between two checks of the credential of a client."""
PERMISSION = "connect"
"""What a caller needs to run programs in the containers of a workload."""
_NORMAL, _REVOKED = 1000, 1008
"""Codes of the end of a WebSocket."""
_MOST_WORDS, _LONGEST_WORD = 1000, 100_000
_MOST_CHARACTERS = 10_000
"""The largest terminal, in either direction."""


class _Size(msgspec.Struct):
    """The size of a terminal, as Kubernetes writes it."""

    Width: int
    Height: int


async def execute_program(call: Call) -> Response:
    """Run a program, or a shell, in a container of a workload on this host."""
    key = find_workload(call)
    require_upgrade(call)
    if "origin" in call.request.headers:
        raise Problem(403, "a page in a browser may not run programs")
    return await open_conversation(call, key)


def find_workload(call: Call) -> Key:
    """The workload in the path, in whose containers the caller may run programs. Raises Problem 403 and 404."""
    if call.kind() is not Kind.WORKLOAD:
        raise Problem(404, f"a {call.kind()} has no containers")
    return call.existing(PERMISSION)


def require_upgrade(call: Call) -> None:
    """Refuse a request that opens no WebSocket. Raises Problem 400."""
    if "subprotocols" not in call.request.scope:
        raise Problem(400, "this is a WebSocket: ask for an upgrade")


async def open_conversation(call: Call, key: Key) -> Response:
    """The WebSocket of the client, connected with the program in a container of ``key`` that the query asks for."""
    from reconciler.terminal.session import TerminalSize

    size = None
    if call.flag("tty"):
        size = TerminalSize(call.count("rows", 24, _MOST_CHARACTERS), call.count("columns", 80, _MOST_CHARACTERS))
    query = call.request.query_params
    return _Conversation(call, key, await open_program(call, key, query.getlist("command"), query, size))


async def open_program(
    call: Call, key: Key, words: Sequence[str], names: Mapping[str, str], size: TerminalSize | None = None
) -> ExecSession:
    """A session of the program ``words``, or of a shell, in a container of the workload ``key``.

    ``names`` may have a ``replica``, ``container`` and ``location``. Raises Problem, EngineError and RefusedError.
    """
    from reconciler.operations.exec import SHELL, ExecOptions, find_target, open_session

    if len(words) > _MOST_WORDS or any(len(word) > _LONGEST_WORD or "\0" in word for word in words):
        raise Problem(400, f"a command has at most {_MOST_WORDS} words, and no zero bytes")
    settings = call.api.settings
    options = ExecOptions(*(names.get(name, "") for name in ExecOptions._fields))
    open_records = partial(Records.open, settings.state / FILE, read_only=True)
    target = await asyncio.to_thread(find_target, settings, open_records, key, options)
    return await open_session(settings, target, words or SHELL, size)


class _Conversation(Response):
    """Connects the WebSocket of a client with ``session``, until the program ends or the client goes."""

    def __init__(self, call: Call, key: Key, session: ExecSession) -> None:
        super().__init__()
        self._call = call
        self._key = key
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept the WebSocket, and converse."""
        try:
            chosen = PROTOCOL if PROTOCOL in scope["subprotocols"] else None
            await receive()
            await send({"type": "websocket.accept", "subprotocol": chosen})
            await self._converse(receive, send)
        finally:
            await self._session.close()

    async def _converse(self, receive: Receive, send: Send) -> None:
        work: list[asyncio.Task[Any]] = [
            asyncio.create_task(coroutine) for coroutine in (self._feed(receive), self._show(send), self._expire(send))
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            results = await asyncio.gather(*work, return_exceptions=True)
        for error in results:
            # The client may go at any moment; everything else is a bug.
            if isinstance(error, Exception) and not isinstance(error, OSError):
                raise error

    async def _feed(self, receive: Receive) -> None:
        """Pass on what the client sends, until it goes."""
        while (message := await receive())["type"] == "websocket.receive":
            content = message.get("bytes") or b""
            with contextlib.suppress(BrokenPipeError):
                await self._take(content[:1], content[1:])

    async def _take(self, channel: bytes, content: bytes) -> None:
        from reconciler.terminal.session import TerminalSize

        if channel == bytes([STDIN]):
            await self._session.write(content)
        elif channel == bytes([CLOSE]) and content == bytes([STDIN]):
            await self._session.close_stdin()
        elif channel == bytes([RESIZE]):
            with contextlib.suppress(msgspec.MsgspecError):
                size = msgspec.json.decode(content, type=_Size)
                if 0 < size.Height <= _MOST_CHARACTERS and 0 < size.Width <= _MOST_CHARACTERS:
                    await self._session.resize(TerminalSize(size.Height, size.Width))

    async def _show(self, send: Send) -> None:
        """Pass on the output, then how the program ended."""
        while (output := await self._session.read()) is not None:
            await send({"type": "websocket.send", "bytes": bytes([output.channel]) + output.content})
        try:
            status = exit_status(await self._session.wait())
        except EngineError as error:
            status = {"status": "Failure", "reason": str(Reason.INTERNAL_ERROR), "message": str(error)}
        await send({"type": "websocket.send", "bytes": bytes([STATUS]) + msgspec.json.encode(status)})
        await send({"type": "websocket.close", "code": _NORMAL})

    async def _expire(self, send: Send) -> None:
        """Return once the client may not connect any more."""
        try:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                self._call.act_as(await self._call.api.authenticator.caller(self._call.request))
                self._call.require(PERMISSION, self._key)
        except Problem as problem:
            await send({"type": "websocket.close", "code": _REVOKED, "reason": str(problem)[:100]})


def exit_status(code: int) -> dict[str, Any]:
    """The end of a program with the exit code ``code``, as Kubernetes writes it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


PARAMETERS = ("command", "replica", "container", "location", "tty", "rows", "columns")
"""The query of a request for a WebSocket."""

OPERATIONS = (
    Operation(
        "GET",
        "/org/{org}/gvc/{gvc}/{kind}/{name}/-exec",
        execute_program,
        "Run a program in a container of a workload, over a WebSocket.",
        PERMISSION,
        {101: "The WebSocket is open.", 409: "No container runs."},
        PARAMETERS,
        changes=True,
        media=WEBSOCKET,
    ),
)
