"""Messages about troubles: what is wrong, what no longer is, and what several of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reconciler.notifications.causes import BACKUPS, is_shared
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.notifications.outcomes import MOST_RESOURCES
from reconciler.notifications.severity import Severity, choose_worst, grade_reason
from reconciler.records.notifications.troubles import Trouble, TroubleGroup
from reconciler.times import format_duration

FLAPS = 3
"""Changes that end where they began and are a message nevertheless: something goes up and down."""

WORDS = {
    EventType.HEALTH: ("is unhealthy", "are unhealthy", "healthy again"),
    EventType.DRIFT: ("differs from Git", "differ from Git", "as in Git again"),
    EventType.CRON: ("has failing executions", "have failing executions", "well again"),
    EventType.CERTIFICATE: ("has a problem with a certificate", "have problems with certificates", "well again"),
    EventType.VOLUME: ("has a problem with a volume", "have problems with volumes", "well again"),
    EventType.DAEMON: ("has a problem", "have problems", "well again"),
}


def find_source(members: Sequence[Trouble]) -> str:
    """The source that all of ``members`` have, or ""."""
    sources = {member.source for member in members}
    return sources.pop() if len(sources) == 1 else ""


def make_trouble_message(
    group: TroubleGroup, kind: EventType, members: Sequence[Trouble], now: float, recovered: Sequence[str] = ()
) -> Message:
    """What is said of ``members``, the troubles of ``group`` now; without any, that all is well again."""
    keys = list(dict.fromkeys(member.key for member in members))
    one, many, again = WORDS[kind]
    source = find_source(members) if members else group.sources[0] if len(group.sources) == 1 else ""
    names = keys or list(group.reported)
    ending = (one if len(names) == 1 else many) if keys else f"{'is' if len(names) == 1 else 'are'} {again}"
    about = f": {group.cause}" if len(keys) > 1 and is_shared(group.cause) else ""
    flaps = [f"It changed {group.changes} times since {format_duration(now - group.last)} ago."]
    lines = [
        *_list_texts(members),
        *(
            [f"{_name_keys(recovered, '', kind)} {'is' if len(recovered) == 1 else 'are'} {again}"]
            if recovered and keys
            else []
        ),
        *(flaps if group.last and group.changes >= FLAPS else []),
    ]
    shown = members[:MOST_RESOURCES]
    worst = choose_worst(grade_reason(member.reason) for member in members)
    return Message(
        id=f"{kind}/{group.cause}/{group.incident}",
        sequence=0,
        event=kind,
        state=State.FAILURE if members else State.SUCCESS,
        severity=worst if members else Severity(group.severity or Severity.ERROR),
        title=f"{_name_keys(names, source, kind)} {ending}{about}",
        at=now,
        source=source,
        lines=tuple(lines),
        resources=tuple(MessageResource(m.key, "", m.location, m.reason, m.message) for m in shown),
        left_out=len(members) - len(shown),
        counts={"troubled": len(keys)} if keys else {},
    )


_NAMES = {"": "the daemon", BACKUPS: "the backup of the records"}
"""What people call the key of a trouble that is none of a resource or source."""


def _name_keys(keys: Sequence[str], source: str, kind: EventType) -> str:
    """``workload/shop/api``, or ``3 resources of main``."""
    if len(keys) == 1:
        if kind is EventType.CERTIFICATE and not keys[0]:
            return "the API"
        return _NAMES.get(keys[0], keys[0])
    of = f" of {source}" if source else ""
    return f"{len(keys)} resources{of}"


def _list_texts(members: Sequence[Trouble]) -> Iterator[str]:
    """One line for each text that several of ``members`` share, most first."""
    texts = Counter(member.message for member in members)
    if len(members) > 1:
        for message, count in texts.most_common(3):
            if count > 1:
                yield f"{count} of them: {message}"
