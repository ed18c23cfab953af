"""Manifests in files: apply, convert and delete them in the order of their kinds."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.errors import ReconcilerError, RefusedError, UsageError
from reconciler.input_files import read_files, shown_name
from reconciler.model.record import Health
from reconciler.platform_cli.advice import with_local_commands
from reconciler.platform_cli.commands.resources import described, resource_key
from reconciler.platform_cli.documents import Input, read_documents
from reconciler.platform_cli.output import slim
from reconciler.platform_cli.refusals import UNUSABLE, ApiError
from reconciler.platform_cli.session import Session
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.printable import printable
from reconciler.reasons import ConditionType
from reconciler.terminal.live_display import Live

if TYPE_CHECKING:
    from reconciler.model.finding import Finding

ORDER = ("agent", "secret", "cloudaccount", "location", "gvc", "identity", "volumeset", "policy", "workload")
"""The kinds that are applied first, in this order; deletions go the other way."""
READY_SECONDS, READY_PAUSE, READY_PASSES = 300.0, 5.0, 3
_GVC = re.compile("[a-z]([-a-z0-9]{0,62}[a-z0-9])?")
_READY = (Health.HEALTHY, Health.RECORDED)
"""Health of what is ready; at a location where nothing runs, a resource is only recorded."""


class Manifest(msgspec.Struct, frozen=True, eq=False):
    """A manifest, where it is written, and the path of its resource and of its collection."""

    source: Input
    kind: str
    body: dict[str, Any]
    path: str
    collection: str

    @property
    def title(self) -> str:
        """``KIND NAME``."""
        return f"{self.kind} {self.body['name']}"

    def failure(self, error: ApiError) -> str:
        """A line for a change that the API refuses, and one for each finding."""
        key = resource_key(self.kind, str(self.body.get("gvc") or ""), self.body["name"])
        return f"error: {self.source.place}: {self.title}: {error.within(self.source, key)}"


def apply(session: Session, file: tuple[str, ...], k8s: bool | None, ready: bool | None) -> None:
    """Create and change the resources of the manifests; one that fails does not hold back the others."""
    apply_documents(session, _documents(session, file, k8s=bool(k8s)), ready=bool(ready))


def apply_documents(session: Session, documents: Sequence[Input], *, ready: bool) -> None:
    """Create and change the resources of ``documents``, and wait for them if ``ready``. Raises RefusedError."""
    manifests, failed = _manifests(session, documents)
    total = len(manifests) + failed
    applied = {}
    for each in sorted(manifests, key=lambda manifest: _rank(manifest.kind)):
        try:
            applied[each] = _apply(session, each)
        except ApiError as error:
            if error.status in UNUSABLE:
                raise
            session.output.note(each.failure(error))
            failed += 1
    if ready and session.reviews:
        raise RefusedError("what waits for a review does not become ready: merge it, and apply the files again")
    if ready and applied:
        _wait_until_ready(session, applied)
    _raise_for(failed, total)


def _apply(session: Session, manifest: Manifest) -> str | None:
    """Replace the resource, or create it if it does not exist.

    Returns the revision that it has until the daemon applies the change; None if nothing changes.
    """
    try:
        body, done = session.change("PUT", manifest.path, manifest.body).body, "changed"
    except ApiError as error:
        if not error.is_missing:
            raise
        body, done = session.change("POST", manifest.collection, manifest.body).body, "created"
    change = (body or {}).get("change")
    if not session.output.is_text:
        session.output.document(body or {}, {})
    elif change:
        session.output.line(f"{manifest.title} {done}: {described(change)}")
    else:
        session.output.line(f"{manifest.title} is unchanged")
    return str(((body or {}).get("status") or {}).get("revision", "")) if change else None


def delete(session: Session, file: tuple[str, ...], k8s: bool | None) -> None:
    """Delete the resources of the manifests; one that does not exist is no error."""
    delete_documents(session, _documents(session, file, k8s=bool(k8s)))


def delete_documents(session: Session, documents: Sequence[Input]) -> None:
    """Delete the resources of ``documents``. Raises RefusedError."""
    manifests, failed = _manifests(session, documents)
    total = len(manifests) + failed
    for each in sorted(manifests, key=lambda manifest: _rank(manifest.kind), reverse=True):
        try:
            change = (session.change("DELETE", each.path).body or {}).get("change")
            session.output.line(f"{each.title} deleted" + (f": {described(change)}" if change else ""))
        except ApiError as error:
            if error.is_missing:
                continue
            if error.status in UNUSABLE:
                raise
            session.output.note(each.failure(error))
            failed += 1
    _raise_for(failed, total)


def convert(session: Session, file: tuple[str, ...], protocol: str | None) -> None:
    """Print the manifests that Kubernetes manifests become; remarks go to stderr."""
    session.output.manifests(_converted(session, read_files(file), protocol or ""))


def _converted(session: Session, contents: dict[str, bytes], protocol: str = "") -> list[dict[str, Any]]:
    """The manifests that Kubernetes manifests become. Raises RefusedError for faults."""
    from reconciler.convert.kubernetes.convert import convert as convert_kubernetes
    from reconciler.convert.notes import findings
    from reconciler.convert.reader import read_kubernetes

    gvc = wanted_gvc(session)
    sources, faults = read_kubernetes(contents)
    converted = convert_kubernetes(sources, gvc, protocol)
    report(session, sorted([*faults, *findings(converted.remarks, contents)]))
    return [draft.body for draft in converted.drafts]


def wanted_gvc(session: Session) -> str:
    """The GVC that the call names; "" if it names none. Raises UsageError."""
    gvc = session.setting("gvc")
    if gvc and not _GVC.fullmatch(gvc):
        raise UsageError(f"--gvc {gvc}: a name is lower-case letters, digits and hyphens, at most 64")
    return gvc


def report(session: Session, findings: Sequence[Finding]) -> None:
    """Show what a conversion finds. Raises RefusedError if any of it is an error."""
    for each in findings:
        hint = f"; {each.suggestion}" if each.suggestion else ""
        place = f"{each.path}:{each.line}:{each.column}"
        session.output.note(f"{place}: {each.severity}: {each.message}{hint} [{each.rule}]")
    if any(each.severity == "error" for each in findings):
        raise RefusedError("the files have errors, so nothing is converted")


def _documents(session: Session, files: Sequence[str], *, k8s: bool) -> list[Input]:
    contents = read_files(files)
    if k8s:
        return [Input(", ".join(files), 1, each) for each in _converted(session, contents)]
    documents = read_documents(contents)
    if not documents:
        raise UsageError(f"{', '.join(map(shown_name, files))}: there is no manifest")
    return documents


def _manifests(session: Session, documents: Sequence[Input]) -> tuple[list[Manifest], int]:
    """The manifests of ``documents``, and how many of these are unusable: these are reported."""
    found, failed = [], 0
    for each in _flattened(documents):
        try:
            found.append(_manifest(session, each))
        except UsageError:
            raise
        except ReconcilerError as error:
            session.output.note(f"error: {each.place}: {error}")
            failed += 1
    if not found and not failed:
        raise UsageError(f"{', '.join(sorted({each.path for each in documents}))}: there is no manifest")
    return found, failed


def _flattened(documents: Sequence[Input]) -> list[Input]:
    """The documents, and the items of those that are lists, as `get -o yaml` prints them."""
    found: list[Input] = []
    for each in documents:
        items = each.value.get("items") if isinstance(each.value, dict) and each.value.get("kind") == "list" else None
        values, at = (each.value, ()) if isinstance(each.value, list) else (items, ("items",))
        if values is None:
            found.append(each)
        else:
            found += [each._replace(value=item, at=(*at, number)) for number, item in enumerate(values)]
    return found


def _manifest(session: Session, document: Input) -> Manifest:
    """The manifest of a document. Raises RefusedError if it is none, UsageError if ``--gvc`` contradicts it."""
    if document.fault:
        raise RefusedError(document.fault)
    body = slim(document.value)
    kind, name = (body.get("kind"), body.get("name")) if isinstance(body, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        raise RefusedError("a manifest has a kind and a name")
    if kind not in KINDS:
        from reconciler.model.suggest import closest

        near = closest(kind, KINDS)
        raise RefusedError(f"there is no kind {kind!r}" + (f"; did you mean {near!r}?" if near else ""))
    if not KINDS[kind].in_gvc:
        return Manifest(document, kind, body, session.path(kind, name), session.path(kind))
    gvc = body.get("gvc")
    if gvc and session.by_flag("gvc") and gvc != session.by_flag("gvc"):
        raise UsageError(
            f"{document.place}: the {kind} {name} is in the GVC {gvc}, and --gvc is {session.by_flag('gvc')}"
        )
    place = f"/org/{session.org}/gvc/{gvc or session.gvc}/{kind}"
    return Manifest(document, kind, {**body, "gvc": gvc or session.gvc}, f"{place}/{name}", place)


def _rank(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _wait_until_ready(session: Session, applied: Mapping[Manifest, str | None]) -> None:
    """Return once all resources were ready three times in a row. Raises RefusedError after 5 minutes."""
    deadline, passes = time.monotonic() + READY_SECONDS, 0
    with _waiting_view(session) as show:
        while True:
            found = {each.title: _obstacle(session, each, former) for each, former in applied.items()}
            waiting = {title: obstacle for title, obstacle in found.items() if obstacle}
            passes = 0 if waiting else passes + 1
            if passes == READY_PASSES:
                break
            if time.monotonic() > deadline:
                names = ", ".join(waiting) or "the resources"
                text = f"not ready after {READY_SECONDS:.0f} s: {names}. See: platform workload eventlog NAME"
                raise RefusedError(text)
            show(waiting)
            time.sleep(READY_PAUSE)
    session.output.line("everything is ready")


@contextmanager
def _waiting_view(session: Session) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Shows what is not ready, and why: in place on a terminal, else as a line whenever others are waited for."""
    if sys.stderr.isatty():
        with Live(sys.stderr) as live:
            yield lambda waiting: live.draw([printable(f"{name}  {text}") for name, text in waiting.items()])
            live.clear()
        return
    shown: list[str] = []

    def note(waiting: Mapping[str, str]) -> None:
        if waiting and [*waiting] != shown:
            session.output.note(f"waiting for {', '.join(waiting)}")
        shown[:] = waiting

    yield note


def _obstacle(session: Session, manifest: Manifest, former: str | None) -> str:
    """Why a resource is not ready: its health, or that its change of the revision ``former`` waits; "" if it is."""
    try:
        status = session.client.get(manifest.path).get("status", {})
    except ApiError as error:
        if error.is_missing:
            return "not applied yet"
        raise
    if former is not None and status.get("revision") == former:
        return "not applied yet"
    if status.get("health") in _READY:
        return ""
    message = next(
        (each.get("message") for each in status.get("conditions", ()) if each["type"] == ConditionType.READY), ""
    )
    return with_local_commands(f"{status.get('health') or Health.UNKNOWN}: {message}")


def _raise_for(failed: int, total: int) -> None:
    if failed:
        others = "; the others were carried out" if failed < total else ""
        raise RefusedError(f"{failed} document{'s' if failed > 1 else ''} failed{others}")
