"""Executions of cron workloads: waits for those that a command started, and shows how they ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from reconciler.errors import RefusedError
from reconciler.platform_cli.commands.logs import shown_line
from reconciler.platform_cli.refusals import UNUSABLE, ApiError
from reconciler.platform_cli.session import Session

POLL_SECONDS = 0.5
LINES = 20
"""How many lines of the log of an execution are shown at its end."""
ACTIVE, SUCCESS, LOST = "Active", "Success", "Unknown"
_STARTED = "the execution "
"""How the message of a command begins that has started one."""


def wait_for_executions(
    session: Session, kind: str, ref: str, commands: Sequence[Mapping[str, Any]], deadline: float
) -> None:
    """Return when the executions that ``commands`` started have ended well, up to ``deadline`` (monotonic seconds).

    The last lines of their logs are shown, on stderr. Raises RefusedError if one failed, or goes on.
    """
    started = {name: str(each["spec"].get("location", "")) for each in commands if (name := _execution(each))}
    ends = dict.fromkeys(started, "")
    while True:
        found = _statuses(session, kind, ref, started)
        # One that was never listed is about to be; one that is gone again was followed by too many others.
        ends = {name: found.get(name) or (last and LOST) for name, last in ends.items()}
        if all(status not in ("", ACTIVE) for status in ends.values()):
            break
        if time.monotonic() > deadline:
            running = ", ".join(name for name, status in ends.items() if status in ("", ACTIVE))
            raise RefusedError(f"{running} did not end in time, and goes on: platform {kind} cron get {ref}")
        time.sleep(POLL_SECONDS)
    for name, status in ends.items():
        _show_log(session, kind, ref, name)
        session.output.note(f"{name} at {started[name]}: {status}")
    if bad := [f"{name} at {started[name]} ended as {status}" for name, status in ends.items() if status != SUCCESS]:
        raise RefusedError("; ".join(bad))


def _execution(command: Mapping[str, Any]) -> str:
    """The name of the execution that a command has started; "" if none is named."""
    messages = (command.get("status") or {}).get("messages") or ()
    return next((each.removeprefix(_STARTED) for each in messages if each.startswith(_STARTED)), "")


def _statuses(session: Session, kind: str, ref: str, started: Mapping[str, str]) -> dict[str, str]:
    """The status of each execution that the deployments list."""
    deployments = session.client.get(f"{session.path(kind, ref)}/deployment")["items"]
    return {
        each["name"]: str(each["status"])
        for deployment in deployments
        for each in deployment["status"].get("jobExecutions", ())
        if started.get(each["name"]) in ("", deployment["name"])
    }


def _show_log(session: Session, kind: str, ref: str, name: str) -> None:
    """Show the last lines of an execution on stderr, if the caller may read them."""
    *_, gvc, _, workload = map(unquote, session.path(kind, ref).split("/"))
    query = {"query": f"{kind}/{gvc}/{workload}", "replica": name, "lines": str(LINES)}
    try:
        for line in session.client.lines(f"/org/{session.org}/-log", query):
            session.output.aside(shown_line(session, line))
    except ApiError as error:
        if error.status in UNUSABLE:
            raise
