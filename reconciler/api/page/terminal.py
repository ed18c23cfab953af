"""A terminal in a container of a workload, and one command where a browser has no scripts."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.actions import read_form
from reconciler.api.page.forms import check_origin
from reconciler.api.page.rendering import render_page
from reconciler.api.page.resources import read_replicas
from reconciler.api.problems import Problem
from reconciler.api.routes.container_exec import (
    PARAMETERS,
    PERMISSION,
    find_workload,
    open_conversation,
    open_program,
    require_upgrade,
)
from reconciler.api.table import WEBSOCKET, make_page_operation
from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from reconciler.terminal.session import ExecSession

COMMAND_SECONDS = 30.0
"""How long a command may take whose output a page shows."""
_MOST_OUTPUT = 200_000
_CHOICES = ("replica", "container", "location")
_FIELDS = (*_CHOICES, "command")


class ProgramResult(NamedTuple):
    """What a command wrote to both streams, and how it ended: ``code`` is None for one that was stopped."""

    output: str
    code: int | None
    is_cut: bool


async def show_terminal(call: Call) -> Response:
    """A terminal in a container: by a script, or a form for one command."""
    return await _render_terminal(call, {name: call.query(name) for name in _CHOICES})


async def run_program(call: Call) -> Response:
    """Run one command, and show its output."""
    find_workload(call)
    fields = await read_form(call)
    try:
        result = await _run_command(call, fields)
    except ReconcilerError as error:
        return await _render_terminal(call, fields, fault=str(error))
    return await _render_terminal(call, fields, result)


async def connect_terminal(call: Call) -> Response:
    """The WebSocket of the terminal of a page."""
    key = find_workload(call)
    require_upgrade(call)
    # A browser sends the cookie with a WebSocket that a page of another port of this host opens.
    if "origin" not in call.request.headers:
        raise Problem(403, "a page of this server opens this WebSocket; others use the one of the API")
    check_origin(call)
    return await open_conversation(call, key)


async def _render_terminal(
    call: Call, chosen: dict[str, str], result: ProgramResult | None = None, fault: str = ""
) -> Response:
    key = find_workload(call)
    replicas, unknown = await read_replicas(call, key)
    return render_page(
        call,
        "terminal.html",
        key=key,
        replicas=replicas,
        chosen={name: chosen.get(name, "") for name in _FIELDS},
        result=result,
        fault=fault or unknown,
        seconds=int(COMMAND_SECONDS),
    )


async def _run_command(call: Call, fields: dict[str, str]) -> ProgramResult:
    try:
        words = shlex.split(fields.get("command", ""))
    except ValueError as error:
        raise Problem(400, f"the command cannot be read: {error}") from None
    if not words:
        raise Problem(400, "a form runs one command: type it")
    session = await open_program(call, call.key(), words, fields)
    try:
        return await _read_output(session)
    finally:
        await session.close()


async def _read_output(session: ExecSession) -> ProgramResult:
    """Read until the program ends, the time is over, or it wrote more than a page shows."""
    written = bytearray()
    code = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(COMMAND_SECONDS):
            await session.close_stdin()
            while len(written) <= _MOST_OUTPUT and (output := await session.read()) is not None:
                written += output.content
            if len(written) <= _MOST_OUTPUT:
                code = await session.wait()
    return ProgramResult(written[:_MOST_OUTPUT].decode(errors="replace"), code, len(written) > _MOST_OUTPUT)


_PATH = "/{kind}/{gvc}/{name}"

PAGES = (
    make_page_operation(f"/ui/exec{_PATH}", show_terminal, "A terminal in a container.", PERMISSION, _CHOICES),
    make_page_operation(f"/ui/exec{_PATH}", run_program, "Run one command in a container.", PERMISSION)._replace(
        method="POST", changes=True
    ),
    make_page_operation(f"/ui/terminal{_PATH}", connect_terminal, "The terminal.", PERMISSION, PARAMETERS)._replace(
        media=WEBSOCKET, changes=True
    ),
)
