"""Programs and shells in containers of workloads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from reconciler.platform_cli.output import error_text
from reconciler.platform_cli.refusals import ApiError
from reconciler.platform_cli.remote_session import RemoteSession, open_session
from reconciler.platform_cli.session import Session
from reconciler.terminal.relay import Open, has_terminal, run_program
from reconciler.terminal.session import LOST, TerminalSize


def run_command(session: Session, kind: str, ref: str, command: tuple[str, ...], **options: Any) -> int:
    """Run a command in a container of a workload, and return its exit code."""
    tty = options["tty"]
    on_terminal = has_terminal() if tty is None else tty
    opening = partial(open_session, session.client, session.path(kind, ref), command, _select_named_options(options))
    code = _run_remote_session(opening, on_terminal=on_terminal, with_input=on_terminal or bool(options["stdin"]))
    if code not in (0, LOST) and not options["quiet"]:
        session.output.note(f"the command ended with exit code {code}")
    return code


def open_shell(session: Session, kind: str, ref: str, shell: str | None, **options: Any) -> int:
    """Open a shell in a container of a workload, and return its exit code."""
    client, path, words = session.client, session.path(kind, ref), () if shell is None else (shell,)

    async def connect(size: TerminalSize | None) -> RemoteSession:
        remote_session = await open_session(client, path, words, _select_named_options(options), size)
        if not options["quiet"]:
            session.output.note(f"connected to {ref}; `exit` ends the shell")
        return remote_session

    return _run_remote_session(connect, on_terminal=has_terminal(), with_input=True)


def _run_remote_session(opening: Open, *, on_terminal: bool, with_input: bool) -> int:
    """The exit code of the program; ``LOST`` without one, after the reason was shown."""
    try:
        return run_program(opening, on_terminal=on_terminal, with_input=with_input)
    except ApiError as error:
        click.echo(error_text(str(error), "text"), err=True)
        return LOST


def _select_named_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Which replica and container are named."""
    return {name: options[name] for name in ("replica", "container", "location") if options[name]}
