"""docs/notifications.md: what is sent, with the texts that the code makes of examples; the rest is in its template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.generate.tables import table
from reconciler.access.approvers import Approvers, describe_approvers
from reconciler.model.finding import Finding, Severity
from reconciler.notifications.bodies import format_text
from reconciler.notifications.causes import find_cause
from reconciler.notifications.message import EventType, Message, MessageResource
from reconciler.notifications.outcomes import RunNotice, make_approval_message, make_run_message
from reconciler.notifications.severity import Severity as MessageSeverity
from reconciler.notifications.severity import grade_reason
from reconciler.notifications.trouble_messages import make_trouble_message
from reconciler.notifications.troubles import TRANSITIONS
from reconciler.reasons import ConditionType, Reason
from reconciler.records.notifications.troubles import Trouble, TroubleGroup
from reconciler.settings.notifications import USUAL_EVENTS

TEMPLATE = Path(__file__).with_name("notifications.md.in")
AT = 1_767_225_600.0
COMMIT = "4f2a9c1d7e8b6a5f4c3d2e1f0a9b8c7d6e5f4a3b"
REVISION = f"main@sha1:{COMMIT}"
WORDS = {
    EventType.RUN: "A commit: it is being applied, waits, was applied, or failed.",
    EventType.REFUSED: "A revision with errors: nothing of it is applied. The findings name file and line.",
    EventType.APPROVAL: "Steps wait for `reconciler approve`; once for each digest of these steps, until none wait.",
    EventType.HEALTH: "Resources are unhealthy, or healthy again.",
    EventType.DRIFT: "A location differs from what was applied, or no longer does.",
    EventType.VOLUME: "A volume is nearly full, or has room again; its disk has less free than "
    "`host.diskReserve`; a snapshot or its check failed.",
    EventType.CERTIFICATE: "A certificate of a domain, or that of the API, expires soon, or no longer; it could not be "
    "ordered, or its file cannot be used.",
    EventType.CRON: "Executions of a cron workload fail, or succeed again.",
    EventType.DAEMON: "A source cannot be read for longer than `stale`, a location does not answer, the disk is full, "
    "the records are not backed up as `backups` expects, the settings have errors, a secret is lost, or the program "
    "met a bug.",
}
"""What messages of each kind are about; a test fails if one is missing."""


def page() -> str:
    """The text of the page."""
    rows = ((f"`{kind}`", words, "yes" if str(kind) in USUAL_EVENTS else "no") for kind, words in WORDS.items())
    facts = {
        "@events": table(("Event", "What it is about", "In rules without `events`"), rows),
        "@severities": table(("Severity", "What has it"), _list_severities()),
        "@reasons": table(("Reason", "Event", "What it does", "Severity"), _list_reasons()),
        "@examples": "\n\n".join(f"```text\n{format_text(message)}\n```" for message in make_examples()),
    }
    text = TEMPLATE.read_text()
    for name, fact in facts.items():
        text = text.replace(name, fact.strip())
    return text


OUTCOMES = {
    MessageSeverity.CRITICAL: (),
    MessageSeverity.ERROR: ("commits and revisions that fail or are refused",),
    MessageSeverity.WARNING: ("approvals that are asked for",),
    MessageSeverity.INFO: ("commits that wait, are being applied, were applied or superseded",),
}
"""What has each severity beside troubles; a test compares it with the messages of the code."""


def _list_severities() -> Iterator[tuple[str, str]]:
    reasons = {str(ConditionType.SOURCE_STALE): ""} | {
        str(reason): "" for reason, one in TRANSITIONS.items() if not one.ends
    }
    for severity in reversed(MessageSeverity):
        graded = [f"`{reason}`" for reason in reasons if grade_reason(reason) is severity]
        yield f"`{severity}`", "; ".join(part for part in (*OUTCOMES[severity], ", ".join(graded)) if part)


def _list_reasons() -> Iterator[tuple[str, str, str, str]]:
    stale = str(ConditionType.SOURCE_STALE)
    yield f"`{stale}`", f"`{EventType.DAEMON}`", "begins one, until the source can be read", f"`{grade_reason(stale)}`"
    for reason, transition in TRANSITIONS.items():
        word = "ends one" if transition.ends else "a fact" if transition.once else "begins one"
        severity = "that of what it ends" if transition.ends else f"`{grade_reason(reason)}`"
        yield f"`{reason}`", f"`{transition.kind}`", word, severity


def make_examples() -> Iterator[Message]:
    """A message of each kind, and of a recovery."""
    failed = MessageResource("workload/shop/api", "update", "here", str(Reason.IMAGE_PULL_FAILED), "no such tag: 1.4")
    finding = Finding("shop/api.yaml", 12, 7, "unknown-field", Severity.ERROR, "unknown field `replicsa`")
    about = {"subject": "Use 1.4 of the API", "author": "Ada"}
    first = "workload/shop/api at here: ImagePullFailed: no such tag: 1.4"
    counts = {"updated": 1, "failed": 1}
    run = RunNotice("main", REVISION, "failed", counts=counts, message=first, resources=(failed,), **about)
    yield make_run_message(run, AT, recovers=False)
    yield make_run_message(RunNotice("main", REVISION, "applied", counts={"updated": 2}, **about), AT, recovers=True)
    message = "1 error; the first: shop/api.yaml:12:7: unknown field `replicsa`"
    refused = RunNotice("main", REVISION, "refused", message=message, findings=(finding,), **about)
    yield make_run_message(refused, AT, recovers=False)
    waits = MessageResource(
        "volumeset/shop/data", "delete", "here", str(Reason.APPROVAL_REQUIRED), "it deletes volumes"
    )
    digest = "9c0d1e2f3a4b5c6d7e8f"
    waiting = RunNotice(
        "main", REVISION, "waiting", hold_digest=digest, waiting=1, resources=(waits,), subject="Drop it", author="Ada"
    )
    yield make_approval_message(waiting, AT, describe_approvers(Approvers(("ops", "superusers"))))
    for kind, key, reason, text in (
        (EventType.HEALTH, "workload/shop/api", Reason.UNHEALTHY, "not healthy at here: it exits with 1"),
        (EventType.DRIFT, "workload/shop/api", Reason.DRIFT_DETECTED, "changed at here: the image"),
        (
            EventType.VOLUME,
            "volumeset/shop/data",
            Reason.VOLUME_NEARLY_FULL,
            "less than 15 % of volume 0 (10 GB) is free",
        ),
        (EventType.CERTIFICATE, "location/here", Reason.CERTIFICATE_FAILED, "the authority answers no order"),
        (EventType.CRON, "workload/shop/nightly", Reason.EXECUTIONS_FAILING, "3 executions failed: it exits with 1"),
        (
            EventType.DAEMON,
            "source/main",
            ConditionType.SOURCE_STALE,
            "no revision could be read for longer than 600 s",
        ),
    ):
        trouble = Trouble(str(kind), key, "", "main", str(reason), text, AT)
        yield make_trouble_message(TroubleGroup("ops", str(kind), find_cause(trouble)), kind, [trouble], AT)
    text = "not healthy at here: SecretUnusable: secret/db has no key `url`"
    many = [
        Trouble("health", f"workload/shop/{name}", "here", "main", "Unhealthy", text, AT) for name in ("api", "web")
    ]
    yield make_trouble_message(TroubleGroup("ops", "health", find_cause(many[0])), EventType.HEALTH, many, AT)
    ended = TroubleGroup("ops", "health", "secret/db", ("main",), reported=("workload/shop/api",))
    yield make_trouble_message(ended, EventType.HEALTH, [], AT)
