"""Outcomes of runs as notices, which are written in the transaction of the outcome, and as messages made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from reconciler.model.finding import Finding
from reconciler.model.key import Key
from reconciler.model.revision import shorten_id
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.notifications.severity import Severity, choose_worst
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.times import format_iso_time

MOST_RESOURCES = 20
"""The most resources, and the most findings, that a message names."""
MOST_DIGESTED = 50
"""The most messages that a digest lists."""
MOST_GVCS = MOST_KEYS = 1_000
"""The most GVCs, and the most resources, of a notice; of more GVCs, rules for one get all messages."""


RUNNING, PARTIAL = "running", "partial"
"""Outcomes of notices that no report has: the steps begin; all is applied but files with errors."""


class RunNotice(msgspec.Struct, frozen=True):
    """How a run of ``source`` stands. ``outcome`` is RUNNING, PARTIAL, or one of a report of the pipeline.

    ``resources`` are those that were not applied, worst first, ``left_out`` counts the others, and ``failed`` is a
    digest of the keys that failed, with their reasons. ``gvcs`` are those of all steps, ``keys`` the first resources.
    """

    source: str
    revision: str
    outcome: str
    digest: str = ""
    hold_digest: str = ""
    waiting: int = 0
    counts: dict[str, int] = {}
    message: str = ""
    failed: str = ""
    resources: tuple[MessageResource, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: int = 0
    gvcs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    author: str = ""
    subject: str = ""

    @property
    def commit(self) -> str:
        """The full id of the commit."""
        return self.revision.rpartition(":")[2]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunNotice).decode

encode_notice = _encode
"""A notice as bytes for the records."""
decode_notice = _decode
"""A notice from the records."""


def record_notice(records: Records, notice: RunNotice) -> None:
    """Write ``notice``, in the transaction of the outcome. Raises RecordsError."""
    records.notices.append(notice.source, _encode(notice))


def list_gvcs(keys: Iterable[Key]) -> tuple[str, ...]:
    """The GVCs of ``keys``, that of a GVC itself included; () if they are too many."""
    names = {key.gvc or (key.name if key.kind == "gvc" else "") for key in keys} - {""}
    return tuple(sorted(names)) if len(names) <= MOST_GVCS else ()


def list_keys(keys: Iterable[Key]) -> tuple[str, ...]:
    """The first of ``keys`` as text, each once."""
    return tuple(str(key) for key in islice(dict.fromkeys(keys), MOST_KEYS))


def digest_failures(failures: Iterable[tuple[str, str]]) -> str:
    """A digest of pairs of key and reason, in any order; messages are no part of it, as they may change each time."""
    text = "\n".join(sorted(f"{key} {reason}" for key, reason in set(failures)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if text else ""


def get_run_state(notice: RunNotice) -> State:
    """How far the commit of ``notice`` is."""
    if notice.outcome in ("applied", "unchanged"):
        return State.SUCCESS
    if notice.outcome in ("failed", "refused", PARTIAL):
        return State.FAILURE
    return State.RUNNING


def make_run_message(notice: RunNotice, at: float, *, recovers: bool) -> Message:
    """What is said of the commit of ``notice``; ``recovers`` says that the outcome before it was a failure."""
    state = get_run_state(notice)
    refused = notice.outcome == "refused"
    serious = state is State.FAILURE or recovers
    return Message(
        id=f"run/{notice.source}/{notice.commit}",
        sequence=0,
        event=EventType.REFUSED if refused else EventType.RUN,
        state=state,
        severity=Severity.ERROR if serious else Severity.INFO,
        title=f"{notice.source}: {shorten_id(notice.commit)} {_describe_outcome(notice, recovers)}",
        at=at,
        source=notice.source,
        revision=notice.revision,
        commit=notice.commit,
        lines=tuple(_list_run_lines(notice)),
        resources=notice.resources,
        findings=notice.findings,
        left_out=notice.left_out,
        counts=notice.counts,
        digest=notice.digest,
    )


def fingerprint_run(notice: RunNotice) -> str:
    """What of ``notice`` counts as news, beside its state: what failed or waits, never the words about it."""
    if get_run_state(notice) is State.SUCCESS:
        return ""
    if notice.outcome in ("refused", PARTIAL):
        return digest_failures((finding.path, finding.rule) for finding in notice.findings)
    return f"{notice.hold_digest}/{notice.failed}"


def make_approval_message(notice: RunNotice, at: float, approvers: str = "") -> Message:
    """Who asks for an approval of what waits: one message for each digest of held steps.

    ``approvers`` says who may give it, "" if that is not known.
    """
    who = (f"Who may approve: {approvers}",) if approvers else ()
    steps = "1 step of {} waits" if notice.waiting == 1 else f"{notice.waiting} steps of {{}} wait"
    return Message(
        id=f"approval/{notice.source}/{notice.hold_digest}",
        sequence=0,
        event=EventType.APPROVAL,
        severity=Severity.WARNING,
        title=f"{notice.source}: {steps.format(shorten_id(notice.commit))} for an approval",
        at=at,
        source=notice.source,
        revision=notice.revision,
        commit=notice.commit,
        lines=(*_list_commit_lines(notice), f"To approve: reconciler approve {shorten_id(notice.hold_digest)}", *who),
        resources=tuple(one for one in notice.resources if one.reason == Reason.APPROVAL_REQUIRED),
        digest=notice.hold_digest,
    )


def make_superseded_message(former: Message, commit: str, at: float) -> Message:
    """The end of ``former``, whose commit was not applied before ``commit`` came."""
    return _end_message(former, f"is superseded by {shorten_id(commit)}", at)


def make_left_message(former: Message, why: str, at: float) -> Message:
    """The end of ``former``, whose source is not followed any more; ``why`` is a sentence."""
    return _end_message(former, f"is superseded: {why}", at)


def _end_message(former: Message, words: str, at: float) -> Message:
    return msgspec.structs.replace(
        former,
        state=State.SUPERSEDED,
        severity=Severity.INFO,
        title=f"{former.source}: {shorten_id(former.commit)} {words}",
        at=at,
        resources=(),
        findings=(),
        counts={},
        left_out=0,
        may_repeat=False,
    )


def make_digest_message(rule: str, messages: Sequence[Message], at: float) -> Message:
    """One message of many: what was sent by ``rule`` since the digest before."""
    count = len(messages)
    return Message(
        id=f"digest/{rule}/{at:.0f}",
        sequence=0,
        event=EventType.DIGEST,
        severity=choose_worst(message.severity for message in messages),
        title=f"{count} message{'s' * (count != 1)} since the last digest of {rule}",
        at=at,
        lines=tuple(f"{format_iso_time(message.at)} {message.title}" for message in messages[:MOST_DIGESTED]),
        left_out=max(0, count - MOST_DIGESTED),
    )


def _describe_outcome(notice: RunNotice, recovers: bool) -> str:
    if recovers:
        return "is applied; all is well again"
    if notice.outcome == "waiting":
        return "waits for an approval" if notice.hold_digest else "waits"
    words = {
        RUNNING: "is being applied",
        "applied": "is applied",
        "unchanged": "is applied: it changes nothing",
        "refused": f"is refused: {notice.message}",
        PARTIAL: f"is applied without the files with errors: {notice.message}",
    }
    return words.get(notice.outcome) or f"failed: {notice.message}"


def _list_run_lines(notice: RunNotice) -> Sequence[str]:
    counts = ", ".join(f"{number} {word}" for word, number in notice.counts.items())
    about = [counts] if counts and notice.outcome != "refused" else []
    if notice.outcome == "refused":
        about = ["The last good revision stays applied."]
    elif notice.hold_digest:
        about.append(f"To approve what waits: reconciler approve {shorten_id(notice.hold_digest)}")
    return (*_list_commit_lines(notice), *about)


def _list_commit_lines(notice: RunNotice) -> Sequence[str]:
    words = ", ".join(word for word in (notice.subject, notice.author) if word)
    return (words,) if words else ()
