"""Manifests in files: apply, convert and delete them in the order of their kinds."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

from reconciler.errors import ReconcilerError, RefusedError, UsageError
from reconciler.input_files import ProjectFiles, read_beside, read_files, shown_name
from reconciler.model.record import Health
from reconciler.platform_cli.advice import with_local_commands
from reconciler.platform_cli.commands.operating import SOMETHING_TO_DO
from reconciler.platform_cli.commands.resources import describe_change, resource_key
from reconciler.platform_cli.documents import Input, read_documents
from reconciler.platform_cli.durations import parse_length
from reconciler.platform_cli.output import slim_manifest
from reconciler.platform_cli.refusals import ApiError, refused_change
from reconciler.platform_cli.session import Session
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.printable import escape_text, printable_lines
from reconciler.reasons import ConditionType, Reason
from reconciler.terminal.live_display import Live
from reconciler.times import format_duration

if TYPE_CHECKING:
    from reconciler.model.finding import Finding

ORDER = ("agent", "secret", "cloudaccount", "location", "gvc", "identity", "volumeset", "policy", "workload")
"""The kinds that are applied first, in this order; deletions go the other way."""
REASON_SECONDS = 5.0
"""Without a terminal, seconds between two lines on the same resources."""
READY_PAUSE = 1.0
"""Seconds between two looks at what is not ready."""
_GVC = re.compile("[a-z]([-a-z0-9]{0,62}[a-z0-9])?")
_NOTHING = "{}: there is no manifest"
_READY = (Health.HEALTHY, Health.RECORDED)
"""Health of what is ready; at a location where nothing runs, a resource is only recorded."""
_FOR_PEOPLE = (Reason.APPROVAL_REQUIRED, Reason.APPROVAL_REFUSED, Reason.SUSPENDED)
"""Why a change waits until somebody decides."""
PEOPLE_SECONDS = 5.0
"""Seconds after which the daemon has read a commit: what waits for people then is no longer what waited before it."""
MOST_OBSTACLES = 5
"""The most resources that an error names."""


class FileManifest(msgspec.Struct, frozen=True, eq=False):
    """A manifest, where it is written, and the path of its resource."""

    source: Input
    kind: str
    body: dict[str, Any]
    path: str

    @property
    def title(self) -> str:
        """``KIND NAME``."""
        return f"{self.kind} {self.body['name']}"

    @property
    def key(self) -> str:
        """``KIND/NAME``, with the GVC in between, as findings name the resource."""
        return resource_key(self.kind, str(self.body.get("gvc") or ""), self.body["name"])

    def failure(self, error: ApiError) -> str:
        """A line for a change that the API refuses, and one for each finding."""
        return f"error: {self.source.place}: {self.title}: {error.within(self.source, self.key)}"


def apply(
    session: Session,
    file: tuple[str, ...],
    k8s: bool | None,
    dry_run: bool | None,
    digest: str | None,
    **waiting: Any,
) -> None:
    """Create and change the resources of the manifests, all in one commit or none."""
    documents, seconds = _load_documents(session, file, k8s=bool(k8s)), parse_wait(**waiting)
    if dry_run:
        if seconds:
            raise UsageError("--dry-run changes nothing, so nothing becomes ready: leave --ready out")
        _show_difference(session, _request_change(session, documents, dry=True, digest=digest or ""))
    else:
        apply_documents(session, documents, wait=seconds, digest=digest or "")


def parse_wait(ready: bool | None, timeout: str) -> float:
    """The seconds that --ready waits at most; 0 without it. Raises UsageError."""
    seconds = parse_length(timeout, "--timeout")
    return seconds if ready else 0.0


def diff(session: Session, file: tuple[str, ...], k8s: bool | None, detailed_exitcode: bool | None) -> int:
    """Show what `apply` would change: the files, and the plan with its digest. Returns the exit code."""
    answer = _request_change(session, _load_documents(session, file, k8s=bool(k8s)), dry=True)
    _show_difference(session, answer)
    return SOMETHING_TO_DO if detailed_exitcode and answer["change"] else 0


def apply_documents(session: Session, documents: Sequence[Input], *, wait: float, digest: str = "") -> None:
    """Create and change the resources of ``documents``, and wait for them for ``wait`` seconds. Raises RefusedError."""
    manifests, failed = _parse_manifests(session, documents)
    manifests.sort(key=lambda manifest: _get_kind_rank(manifest.kind))
    before = {manifest: _read_status(session, manifest).get("revision") for manifest in manifests} if wait else {}
    answer = _send_change(session, manifests, failed, digest=digest)
    _show_actions(session, answer, manifests)
    if wait and session.reviews:
        raise RefusedError("what waits for a review does not become ready: merge it, and apply the files again")
    if wait:
        steps = ((answer["change"] or {}).get("plan") or {}).get("steps", ())
        changed = {step["key"] for step in steps}
        former = {manifest: before[manifest] or "" if manifest.key in changed else None for manifest in manifests}
        _wait_until_ready(session, former, wait)


def delete(session: Session, file: tuple[str, ...], k8s: bool | None) -> None:
    """Delete the resources of the manifests, all in one commit or none; one that does not exist is no error."""
    delete_documents(session, _load_documents(session, file, k8s=bool(k8s)))


def delete_documents(session: Session, documents: Sequence[Input]) -> None:
    """Delete the resources of ``documents``. Raises RefusedError."""
    manifests, failed = _parse_manifests(session, documents)
    answer = _send_change(session, manifests, failed, deletes=True)
    _show_actions(session, answer, manifests)


def _request_change(session: Session, documents: Sequence[Input], *, dry: bool, digest: str = "") -> dict[str, Any]:
    manifests, failed = _parse_manifests(session, documents)
    return _send_change(session, manifests, failed, dry=dry, digest=digest)


def _send_change(
    session: Session,
    manifests: Sequence[FileManifest],
    failed: int,
    *,
    deletes: bool = False,
    dry: bool = False,
    digest: str = "",
) -> dict[str, Any]:
    """Make one change of ``manifests``; returns the answer. If documents ``failed``, only show what else is wrong.

    Raises RefusedError.
    """
    inverse = -1 if deletes else 1
    ordered = sorted(manifests, key=lambda manifest: inverse * _get_kind_rank(manifest.kind))
    body = (
        {"delete": [manifest.path for manifest in ordered]}
        if deletes
        else {"items": [manifest.body for manifest in ordered]}
    )
    query = {"dryRun": "true"} if dry or failed else {}
    query |= {"digest": digest} if digest else {}
    answer: dict[str, Any] = {}
    try:
        if manifests:
            answer = session.change("POST", f"/org/{quote(session.org, safe='')}/-apply", body, **query).body or {}
    except ApiError as error:
        if not error.findings:
            raise
        faulty = _note_findings(session, error, manifests)
        raise RefusedError(_format_refusal(failed + faulty)) from None
    if failed:
        raise RefusedError(_format_refusal(failed))
    return answer


def _note_findings(session: Session, error: ApiError, manifests: Sequence[FileManifest]) -> int:
    """Show the findings of a refused change at their manifests; returns how many of these there are."""
    by_key = {manifest.key: manifest for manifest in manifests}
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for finding in error.findings:
        grouped.setdefault(str(finding.get("key") or ""), []).append(finding)
    for key, findings in grouped.items():
        refused = refused_change(findings, error.status)
        session.output.note(by_key[key].failure(refused) if key in by_key else f"error: {refused}")
    return len(grouped)


def _format_refusal(failed: int) -> str:
    return f"{failed} document{'s' if failed > 1 else ''} failed; nothing was changed"


def _show_actions(session: Session, answer: Mapping[str, Any], manifests: Sequence[FileManifest]) -> None:
    """Print what becomes of each resource, and the commit."""
    if not session.output.is_text:
        session.output.value(answer)
        return
    titles = {manifest.path: manifest.title for manifest in manifests}
    for item in answer.get("items", ()):
        action = {"updated": "changed", "unchanged": "is unchanged"}.get(item["action"], item["action"])
        if action != "missing":
            session.output.line(f"{titles.get(item['link'], item['link'])} {action}")
    if answer.get("change"):
        session.output.line(describe_change(answer["change"]))


def _show_difference(session: Session, answer: Mapping[str, Any]) -> None:
    """Print the difference of the files, and the plan."""
    change = answer.get("change")
    if not session.output.is_text:
        session.output.value(answer)
    elif not change:
        session.output.line("nothing would change")
    else:
        plan = change["plan"]
        session.output.text(printable_lines(change["diff"]))
        for step in plan["steps"]:
            where = f" at {step['location']}" if step["location"] else ""
            waits = ", and waits for an approval" if step["hold"] else ""
            session.output.line(f"{step['action']} {step['key']}{where}{waits}")
        session.output.line(f"plan {plan['digest']} (to apply no other: --digest {plan['digest']})")


def convert(
    session: Session, file: tuple[str, ...], protocol: str | None, destination: str | None, allow_outside: bool | None
) -> None:
    """Print the manifests that files of Kubernetes, Kamal or Podman become; remarks go to stderr."""
    words = (protocol or "", destination or "")
    session.output.manifests(_convert_to_manifests(session, file, words, allow_outside=bool(allow_outside)))


def _convert_to_manifests(
    session: Session, files: Sequence[str], words: tuple[str, str] = ("", ""), *, allow_outside: bool = False
) -> list[dict[str, Any]]:
    """The manifests that files of other tools become; ``words`` are protocol and destination.

    Raises UsageError and RefusedError.
    """
    from reconciler.convert.files import ConversionOptions, convert_files, refuse_others
    from reconciler.convert.quadlet.units import drop_in_directories
    from reconciler.documents.recognition import CONVERTIBLE, UNIT_SUFFIXES, Recogniser

    options = ConversionOptions(
        wanted_gvc(session), *words, lambda directory: ProjectFiles(directory, allow_outside=allow_outside).read
    )
    options.check()
    beside = read_beside(
        read_files(files, UNIT_SUFFIXES, Recogniser(CONVERTIBLE, "platform").advice), drop_in_directories
    )
    contents = options.without_destinations(beside)
    refuse_others(contents, "platform")
    converted = convert_files(contents, options)
    report_findings(session, converted.findings)
    if not converted.drafts and not converted.findings:
        raise UsageError(_NOTHING.format(", ".join(map(shown_name, files))))
    return [draft.body for draft in converted.drafts]


def wanted_gvc(session: Session) -> str:
    """The GVC that the call names; "" if it names none. Raises UsageError."""
    gvc = session.setting("gvc")
    if gvc and not _GVC.fullmatch(gvc):
        raise UsageError(f"--gvc {gvc}: a name is lower-case letters, digits and hyphens, at most 64")
    return gvc


def report_findings(session: Session, findings: Sequence[Finding]) -> None:
    """Show what a conversion finds. Raises RefusedError if any of it is an error."""
    for entry in findings:
        hint = f"; {entry.suggestion}" if entry.suggestion else ""
        position = f"{entry.path}:{entry.line}:{entry.column}"
        session.output.note(f"{position}: {entry.severity}: {entry.message}{hint} [{entry.rule}]")
    if any(finding.severity == "error" for finding in findings):
        raise RefusedError("the files have errors, so nothing is converted")


def _load_documents(session: Session, files: Sequence[str], *, k8s: bool) -> list[Input]:
    from reconciler.documents.recognition import MANIFESTS, Recogniser

    if k8s:
        return [Input(", ".join(files), 1, mapping) for mapping in _convert_to_manifests(session, files)]
    recogniser = Recogniser(MANIFESTS, "platform")
    contents = read_files(files, advice=recogniser.advice)
    recogniser.refuse_others(contents)
    documents = read_documents(contents)
    if not documents:
        raise UsageError(_NOTHING.format(", ".join(map(shown_name, files))))
    return documents


def _parse_manifests(session: Session, documents: Sequence[Input]) -> tuple[list[FileManifest], int]:
    """The manifests of ``documents``, and how many of these are unusable: these are reported."""
    manifests, failed = [], 0
    for entry in _flatten_lists(documents):
        try:
            manifests.append(_parse_manifest(session, entry))
        except UsageError:
            raise
        except ReconcilerError as error:
            session.output.note(f"error: {entry.place}: {error}")
            failed += 1
    if not manifests and not failed:
        raise UsageError(_NOTHING.format(", ".join(sorted({document.path for document in documents}))))
    return manifests, failed


def _flatten_lists(documents: Sequence[Input]) -> list[Input]:
    """The documents, and the items of those that are lists, as `get -o yaml` prints them."""
    flat: list[Input] = []
    for document in documents:
        items = (
            document.value.get("items")
            if isinstance(document.value, dict) and document.value.get("kind") == "list"
            else None
        )
        values, at = (document.value, ()) if isinstance(document.value, list) else (items, ("items",))
        if values is None:
            flat.append(document)
        else:
            flat += [document._replace(value=item, at=(*at, number)) for number, item in enumerate(values)]
    return flat


def _parse_manifest(session: Session, document: Input) -> FileManifest:
    """The manifest of a document. Raises RefusedError if it is none, UsageError if ``--gvc`` contradicts it."""
    if document.fault:
        raise RefusedError(document.fault)
    body = slim_manifest(document.value)
    kind, name = (body.get("kind"), body.get("name")) if isinstance(body, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        raise RefusedError("a manifest has a kind and a name")
    if kind not in KINDS:
        from reconciler.model.suggest import find_closest_word

        near = find_closest_word(kind, KINDS)
        raise RefusedError(f"there is no kind {kind!r}" + (f"; did you mean {near!r}?" if near else ""))
    if not KINDS[kind].in_gvc:
        return FileManifest(document, kind, body, session.path(kind, name))
    gvc = body.get("gvc")
    if gvc and session.by_flag("gvc") and gvc != session.by_flag("gvc"):
        raise UsageError(
            f"{document.place}: the {kind} {name} is in the GVC {gvc}, and --gvc is {session.by_flag('gvc')}"
        )
    collection = f"/org/{session.org}/gvc/{gvc or session.gvc}/{kind}"
    return FileManifest(document, kind, {**body, "gvc": gvc or session.gvc}, f"{collection}/{name}")


def _get_kind_rank(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _wait_until_ready(session: Session, applied: Mapping[FileManifest, str | None], seconds: float) -> None:
    """Return once all resources are ready. Raises RefusedError after ``seconds``, and where waiting cannot help."""
    begun, asked = time.monotonic(), applied
    decided_by: dict[str, float] = {}
    with _waiting_view(session) as show:
        while True:
            obstacles = {manifest: _find_obstacle(session, manifest, former) for manifest, former in asked.items()}
            waiting = {manifest: obstacle for manifest, obstacle in obstacles.items() if obstacle is not None}
            if not waiting and len(asked) == len(applied):
                break
            # What was ready is asked for again at the end: it may not be any more.
            asked = {manifest: applied[manifest] for manifest in waiting} or applied
            now, texts = time.monotonic(), {manifest.title: obstacle.text for manifest, obstacle in waiting.items()}
            people = [manifest.title for manifest, obstacle in waiting.items() if obstacle.is_for_people]
            decided_by = {title: decided_by.get(title, now) for title in people}
            if any(now - since >= PEOPLE_SECONDS for since in decided_by.values()):
                raise RefusedError(f"waiting does not help: {_join_obstacles({one: texts[one] for one in decided_by})}")
            if now - begun > seconds:
                late = _join_obstacles(texts) or "the last look is missing"
                raise RefusedError(f"not ready after {format_duration(seconds)}: {late}")
            if texts:
                show(texts)
                time.sleep(READY_PAUSE)
    session.output.line("everything is ready")


def _join_obstacles(texts: Mapping[str, str]) -> str:
    """``workload web: Loading: 0 of 1 replicas; …``, of the first few."""
    shown = [f"{title}: {text}" for title, text in list(texts.items())[:MOST_OBSTACLES]]
    more = len(texts) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


@contextmanager
def _waiting_view(session: Session) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Shows what is not ready, and why: in place on a terminal, else as a line whenever that is something else.

    Reasons alone that change are shown each 5 seconds at most.
    """
    if sys.stderr.isatty():
        with Live(sys.stderr) as live:
            yield lambda waiting: live.draw([escape_text(f"{name}  {text}") for name, text in waiting.items()])
            live.clear()
        return
    shown: dict[str, str] = {}
    due = 0.0

    def note(waiting: Mapping[str, str]) -> None:
        nonlocal shown, due
        now = time.monotonic()
        is_news = waiting.keys() != shown.keys() or (waiting != shown and now >= due)
        if waiting and is_news:
            session.output.note(f"waiting for {'; '.join(f'{name}: {text}' for name, text in waiting.items())}")
            shown, due = {**waiting}, now + REASON_SECONDS

    yield note


class Obstacle(NamedTuple):
    """Why a resource is not ready; ``is_for_people``: it stays so until somebody decides."""

    text: str
    is_for_people: bool = False


def _find_obstacle(session: Session, manifest: FileManifest, former: str | None) -> Obstacle | None:
    """Why a resource is not ready: its health, or that it still has the revision ``former`` (``""``: none)."""
    status = _read_status(session, manifest)
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    ready = next((value for value in conditions if value["type"] == ConditionType.READY), {})
    is_for_people = ready.get("reason") in _FOR_PEOPLE
    if former is not None and (status.get("revision") or "") == former:
        why = f": {ready.get('message')}" if is_for_people else ""
        return Obstacle(with_local_commands(f"not applied yet{why}"), is_for_people)
    if status.get("health") in _READY:
        return None
    text = with_local_commands(f"{status.get('health') or Health.UNKNOWN}: {ready.get('message')}")
    return Obstacle(text, is_for_people)


def _read_status(session: Session, manifest: FileManifest) -> dict[str, Any]:
    """The status of the resource; empty if there is none."""
    try:
        status: dict[str, Any] = session.client.get(manifest.path).get("status") or {}
    except ApiError as error:
        if error.is_missing:
            return {}
        raise
    return status
