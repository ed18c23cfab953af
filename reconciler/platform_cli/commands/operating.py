"""What operators do from anywhere: approve, plan, suspend, resume, roll back, and see what the daemon does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.errors import UsageError
from reconciler.platform_cli.advice import with_local_commands
from reconciler.platform_cli.client import TEXT
from reconciler.platform_cli.commands.placing import REPLICA_COLUMNS
from reconciler.platform_cli.durations import future_time, parse_length, past_seconds
from reconciler.platform_cli.option_values import whole_number
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.references import SOURCE, name_kind
from reconciler.platform_cli.session import Session
from reconciler.times import format_iso_time

_MARKDOWN, _YAML = "text/markdown", "application/yaml"
_CHANGES, _ERRORS = "plan-changes", "plan-errors"
"""Headers of a plan."""
SOMETHING_TO_DO = 3
"""Exit code of --detailed-exitcode where a plan has steps."""


def approve(session: Session, digest: str) -> None:
    """Approve the steps of a plan that wait."""
    _send_operator_request(session, f"/org/{session.org}/-approve", {"digest": digest})


def refuse(session: Session, digest: str, reason: str | None) -> None:
    """Refuse the steps of a plan that wait."""
    _send_operator_request(session, f"/org/{session.org}/-refuse", {"digest": digest, "reason": reason or ""})


def plan(session: Session, source: str | None, revision: str | None, digest: str | None, **how: Any) -> int:
    """Show what a run would change: of a source, of all, or the plan with a digest. Returns the exit code."""
    if digest and (source or revision):
        raise UsageError("--digest names a plan by itself: leave the source and --revision out")
    query = {"revision": revision} if revision else {}
    if digest:
        paths = [f"/org/{session.org}/-plan/{digest}"]
    else:
        paths = [
            f"{session.path_of_target(text)}/-plan" for text in ([source] if source else _list_source_names(session))
        ]
    counts = _show_plans(session, paths, query, how["format_"])
    if any(errors for _, errors in counts):
        return 1
    return SOMETHING_TO_DO if how["detailed_exitcode"] and any(changes for changes, _ in counts) else 0


def _show_plans(session: Session, paths: list[str], query: Mapping[str, str], form: str) -> list[tuple[int, int]]:
    """Print plans; returns how many steps each has, and how many errors its revision."""
    if session.output.is_text:
        texts = [session.client.text(path, _MARKDOWN if form == "markdown" else TEXT, **query) for path in paths]
        session.output.text("\n".join(with_local_commands(text.text) for text in texts))
        headers = [text.headers for text in texts]
    else:
        answers = [session.client.request("GET", path, query=query) for path in paths]
        bodies = [answer.body for answer in answers]
        session.output.value(bodies if len(bodies) > 1 else bodies[0])
        headers = [answer.headers for answer in answers]
    return [(int(header.get(_CHANGES, "0")), int(header.get(_ERRORS, "0"))) for header in headers]


def _list_source_names(session: Session) -> list[str]:
    return [value["name"] for value in session.client.get(f"/org/{session.org}/{SOURCE}")["items"]]


def suspend(session: Session, target: str, reason: str | None, until: str | None) -> None:
    """Suspend a source or a resource."""
    body = {"reason": reason or "", "until": future_time(until, "--until") if until else ""}
    _send_operator_request(session, f"{session.path_of_target(target)}/-suspend", body)


def resume(session: Session, target: str) -> None:
    """End a suspension, or a rollback."""
    _send_operator_request(session, f"{session.path_of_target(target)}/-resume")


def roll_back(session: Session, target: str, revision: str | None, reason: str | None, **how: bool | None) -> None:
    """Roll a source back, or the manifest of a resource."""
    previous, force, dry_run = (how[name] for name in ("previous", "force", "dry_run"))
    if bool(previous) == bool(revision):
        raise UsageError("name either a revision or --previous")
    path, body = f"{session.path_of_target(target)}/-rollback", {"revision": revision or "", "reason": reason or ""}
    if "/" not in target.removeprefix(f"{SOURCE}/"):
        if dry_run:
            raise UsageError(f"--dry-run is about one resource; for a source: platform plan {target} --revision REV")
        _send_operator_request(session, path, body | {"force": bool(force)})
        return
    if force:
        raise UsageError("--force is about sources, and not about one resource")
    answer = session.change("POST", path, body, **({"dryRun": "true"} if dry_run else {})).body
    if not session.output.is_text:
        session.output.value(answer)
        return
    change = answer.get("change") or {}
    for line in str(change.get("diff", "")).splitlines():
        session.output.line(line)
    session.output.line(answer.get("message") or f"{target} is rolled back by the commit {change.get('commit')}")


def retry(session: Session, target: str) -> None:
    """Retry the failed steps of a resource."""
    _send_operator_request(session, f"{session.find(target, 'workload').path}/-retry")


def sync(session: Session, source: str) -> None:
    """Make the daemon fetch and run a source."""
    _send_operator_request(session, f"{session.path_of_target(source)}/-sync")


def hold(session: Session, target: str, for_: str | None, reason: str | None, release: bool) -> None:
    """Make new requests to a workload wait, or release them."""
    if bool(release) == bool(for_):
        raise UsageError("write either --for TIME or --release")
    path = f"{session.find(target, 'workload').path}/-hold"
    if for_:
        _send_operator_request(session, path, {"seconds": parse_length(for_, "--for"), "reason": reason or ""})
    else:
        _send_operator_request(session, path, method="DELETE")


def _send_operator_request(
    session: Session, path: str, body: Mapping[str, Any] | None = None, method: str = "POST"
) -> None:
    """Send a request of an operator, and print what was recorded."""
    answer = session.client.request(method, path, body=body or {} if method == "POST" else None).body
    if session.output.is_text:
        session.output.line(with_local_commands(str(answer["message"])))
    else:
        session.output.value(answer)


def show_status(session: Session, kind: str | None, name: str | None) -> None:
    """Show the recorded resources with their status; sources that need attention are on stderr."""
    path = f"/org/{session.org}/-status"
    query = _find_listed(session, kind or "", name or "") | session.list_query()
    query = {word: value for word, value in query.items() if value}
    if not session.output.is_text:
        session.output.server_list(lambda media: session.client.text(path, media, **query).text)
        return
    table = session.client.text(path, **query).text
    session.output.text(table if session.output.headings else table.partition("\n")[2])
    if not table:
        session.output.note("nothing is recorded")
    if sources := session.client.text(f"/org/{session.org}/{SOURCE}").text:
        session.output.note(sources.removesuffix("\n"))


def _find_listed(session: Session, kind: str, name: str) -> dict[str, str]:
    """The kind, GVC and name of what is listed, whose key can stand in place of the kind. Raises UsageError."""
    if "/" in kind and not name:
        reference = session.find(kind)
        return {"kind": reference.kind, "gvc": reference.gvc, "name": reference.name}
    return {"kind": name_kind(kind), "gvc": session.by_flag("gvc"), "name": name}


def describe(session: Session, target: str) -> None:
    """Show all that is known about a resource or a source, as text."""
    text = session.client.text(f"/org/{session.org}/-describe", key=_get_target_key(session, target))
    session.output.text(with_local_commands(text.text))


def show_blame(session: Session, target: str, commits: str | None) -> None:
    """Show who wrote each field of a resource."""
    _show_of_resource(session, "-blame", target, commits)


def show_versions(session: Session, target: str, commits: str | None) -> None:
    """List the versions of a resource."""
    _show_of_resource(session, "-versions", target, commits)


def _show_of_resource(session: Session, path: str, target: str, commits: str | None) -> None:
    query = {"key": session.find(target, "workload").key}
    if commits:
        query["commits"] = str(whole_number(commits, "--commits"))
    if session.output.is_text:
        answer = session.client.text(f"/org/{session.org}/{path}", **query)
        session.output.text(with_local_commands(answer.text))
        if note := answer.headers.get("note"):
            session.output.note(note)
    else:
        session.output.value(session.client.request("GET", f"/org/{session.org}/{path}", query=query).body)


def _get_target_key(session: Session, target: str) -> str:
    """``source/NAME``, or the key of a resource."""
    return target if target.startswith(f"{SOURCE}/") else session.find(target, "workload").key


def show_events(session: Session, target: str | None, follow: bool | None, last: str, since: str | None = None) -> None:
    """Show past events, and then new ones as they come if ``follow``; one object a line unless as text."""
    query = {"last": str(whole_number(last, "--last"))} | ({"follow": "true"} if follow else {})
    query |= {"key": _get_target_key(session, target)} if target else {}
    query |= {"since": format_iso_time(past_seconds(since, "--since"))} if since else {}
    for line in session.client.lines(f"/org/{session.org}/-events", query):
        session.output.line(_format_event(session, line) if session.output.is_text else json.dumps(line))


def _format_event(session: Session, event: Mapping[str, Any]) -> str:
    """Time, type, reason, place and message, as `reconciler events` prints them."""
    location = event.get("location") or ""
    target = f"{event.get('key') or '-'}{'@' if location else ''}{location}"
    message = with_local_commands(str(event.get("message", "")))
    time = session.output.time(str(event.get("time", "")))
    return f"{time} {event.get('type', ''):<7} {event.get('reason', ''):<16} {target}: {message}"


def show_history(session: Session, source: str | None, last: str) -> None:
    """Show past runs, newest first."""
    query = {"last": str(whole_number(last, "--last"))} | ({"source": source} if source else {})
    columns = {
        "STARTED": lambda item: session.output.time(str(item.get("started") or "")),
        "SOURCE": make_field_getter("source"),
        "COMMIT": lambda item: str(item["revision"]).rpartition(":")[2][:12],
        "OUTCOME": lambda item: item["outcome"] or "unfinished",
        "TOOK": _format_run_length,
        "CHANGES": _describe_run_changes,
        "AUTHOR": make_field_getter("author"),
        "SUBJECT": make_field_getter("subject"),
        "DIGEST": lambda item: str(item["digest"] or "")[:12],
    }
    session.output.documents([session.client.get(f"/org/{session.org}/-runs", **query)["items"]], columns, "run")


def _describe_run_changes(run: Mapping[str, Any]) -> str:
    """What a run did, or why it failed."""
    counts = ", ".join(f"{count} {word}" for word, count in run["counts"].items())
    return counts or with_local_commands(str(run["message"] or ""))


def _format_run_length(run: Mapping[str, Any]) -> str:
    """How long a run took; "-" while it runs."""
    return "-" if run["seconds"] is None else f"{run['seconds']:.1f} s"


def show_top(session: Session) -> None:
    """Show the replicas on the host of the daemon."""
    gvc = session.by_flag("gvc")
    replicas = session.client.get(f"/org/{session.org}/-top", **({"gvc": gvc} if gvc else {}))["items"]
    if not replicas and session.output.is_text:
        session.output.note("no replicas run there")
        return
    session.output.documents([replicas], {"WORKLOAD": make_field_getter("workload"), **REPLICA_COLUMNS}, "replica")


def show_drift(session: Session, target: str | None) -> None:
    """Show what differs at its location, as the last check of the daemon found it."""
    answer = session.client.get(f"/org/{session.org}/-drift")
    key = _get_target_key(session, target) if target else ""
    rows = [value for value in answer["items"] if key in ("", value["key"])]
    if not rows and session.output.is_text:
        session.output.note("nothing was checked yet" if answer["checked"] is None else "nothing differs")
        return
    columns = {
        "KEY": make_field_getter("key"),
        "LOCATION": make_field_getter("location"),
        "WHAT": make_field_getter("what"),
        "SINCE": lambda item: session.output.time(str(item.get("since") or "")),
        "FIELDS": lambda item: [value["path"] for value in item.get("changes") or ()],
    }
    session.output.documents([rows], columns, "drift")


def show_snapshots(session: Session, target: str | None, deleted: bool | None) -> None:
    """Show snapshots of volumes; final ones with ``deleted``."""
    query = {"key": session.find(target, "volumeset").key} if target else {}
    query |= {"deleted": "true"} if deleted else {}
    columns = {
        "KEY": make_field_getter("key"),
        "LOCATION": make_field_getter("location"),
        "VOLUME": make_field_getter("volumeIndex"),
        "NAME": make_field_getter("name"),
        "CREATED": lambda item: session.output.time(str(item.get("created") or "")),
        "GB": make_field_getter("size"),
        "EXPIRES": lambda item: session.output.time(str(item.get("expires") or "")),
        "TAGS": make_field_getter("tags"),
    }
    session.output.documents(
        [session.client.get(f"/org/{session.org}/-snapshot", **query)["items"]], columns, "snapshot"
    )
