"""Executions of cron workloads: starts them, waits for their end, and lists them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import shown_name
from reconciler.platform_cli.commands.placing import WAIT_SECONDS, read_deployments, run_command
from reconciler.platform_cli.documents import read_value
from reconciler.platform_cli.durations import parse_length
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.refusals import UNUSABLE, ApiError
from reconciler.platform_cli.session import Session

POLL_SECONDS = 0.5
LINES = 20
"""How many lines of the log of an execution are shown at its end."""
ACTIVE, SUCCESS, LOST = "Active", "Success", "Unknown"
_STARTED = "the execution "
"""How the message of a command begins that has started one."""


def get_executions(session: Session, kind: str, ref: str, location: str | None) -> None:
    """Show the executions of a cron workload, oldest first."""
    executions = [
        {"location": read_deployment["name"], **execution}
        for read_deployment in read_deployments(session, kind, ref)
        if location in (None, read_deployment["name"])
        for execution in read_deployment["status"].get("jobExecutions", ())
    ]
    columns = {
        "LOCATION": make_field_getter("location"),
        "NAME": make_field_getter("name"),
        "STATUS": make_field_getter("status"),
        "STARTED": lambda item: session.output.time(str(item.get("startTime") or "")),
        "COMPLETED": lambda item: session.output.time(str(item.get("completionTime") or "")),
    }
    session.output.documents([executions], columns, "execution")


def start_cron(session: Session, kind: str, ref: str, location: str | None, file: str | None, **how: Any) -> None:
    """Run a cron workload now, at one location or at all; with ``wait`` up to the end of its executions."""
    seconds = parse_length(how["timeout"], "--timeout")
    spec: dict[str, Any] = {"location": location} if location else {}
    if file:
        overrides = read_value(file)
        if not isinstance(overrides, list):
            raise UsageError(f"{shown_name(file)} must hold a list of overrides of containers")
        spec["containerOverrides"] = overrides
    deadline = time.monotonic() + seconds
    path, patience = session.path(kind, ref), seconds if how["wait"] else WAIT_SECONDS
    commands = run_command(session, path, "runCronWorkload", spec, 0.0 if how["wait"] is False else patience)
    if how["wait"]:
        _wait_for_executions(session, kind, ref, commands, deadline)


def _wait_for_executions(
    session: Session, kind: str, ref: str, commands: Sequence[Mapping[str, Any]], deadline: float
) -> None:
    """Return when the executions that ``commands`` started have ended well, up to ``deadline`` (monotonic seconds).

    The last lines of their logs are shown, on stderr. Raises RefusedError if one failed, or goes on.
    """
    started = {
        name: str(command["spec"].get("location", ""))
        for command in commands
        if (name := _find_execution_name(command))
    }
    ends = dict.fromkeys(started, "")
    while True:
        statuses = _list_execution_statuses(session, kind, ref, started)
        # One that was never listed is about to be; one that is gone again was followed by too many others.
        ends = {name: statuses.get(name) or (last and LOST) for name, last in ends.items()}
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


def _find_execution_name(command: Mapping[str, Any]) -> str:
    """The name of the execution that a command has started; "" if none is named."""
    messages = (command.get("status") or {}).get("messages") or ()
    return next((message.removeprefix(_STARTED) for message in messages if message.startswith(_STARTED)), "")


def _list_execution_statuses(session: Session, kind: str, ref: str, started: Mapping[str, str]) -> dict[str, str]:
    """The status of each execution that the deployments list."""
    return {
        value["name"]: str(value["status"])
        for deployment in read_deployments(session, kind, ref)
        for value in deployment["status"].get("jobExecutions", ())
        if started.get(value["name"]) in ("", deployment["name"])
    }


def _show_log(session: Session, kind: str, ref: str, name: str) -> None:
    """Show the last lines of an execution on stderr, if the caller may read them."""
    *_, gvc, _, workload = map(unquote, session.path(kind, ref).split("/"))
    query = {"query": f"{kind}/{gvc}/{workload}", "replica": name, "lines": str(LINES)}
    try:
        for line in session.client.lines(f"/org/{session.org}/-log", query):
            session.output.aside(session.output.log_line(line))
    except ApiError as error:
        if error.status in UNUSABLE:
            raise
