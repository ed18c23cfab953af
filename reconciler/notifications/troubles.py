"""Troubles: what is wrong and has not ended, from events and conditions, and the messages about it.

Troubles of one kind and source are one message, so that one cause is one message. The first one comes when some time
has passed, the next ones at intervals; in between, changes are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from reconciler.model.finding import Severity
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.notifications.outbox import News, Outbox
from reconciler.notifications.outcomes import MOST_RESOURCES
from reconciler.notifications.rules import Rules, Subject, end_quiet_hours, find_mute, gvc_of, is_wanted
from reconciler.reasons import ConditionType, Reason
from reconciler.records.notifications.troubles import Trouble, TroubleGroup
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings.notifications import NotificationRuleSettings
from reconciler.times import format_duration

FLAPS = 3
"""Changes that end where they began and are a message nevertheless: something goes up and down."""


class _Transition(NamedTuple):
    """What an event says: a trouble of a kind begins, or (``ends``) is over. A fact (``once``) is over when sent."""

    kind: EventType
    ends: bool = False
    once: bool = False


TRANSITIONS: dict[Reason, _Transition] = {
    Reason.UNHEALTHY: _Transition(EventType.HEALTH),
    Reason.HEALTHY: _Transition(EventType.HEALTH, ends=True),
    Reason.DRIFT_DETECTED: _Transition(EventType.DRIFT),
    Reason.DRIFT_CONFLICT: _Transition(EventType.DRIFT),
    Reason.DRIFT_HEALED: _Transition(EventType.DRIFT, ends=True),
    Reason.DRIFT_RESOLVED: _Transition(EventType.DRIFT, ends=True),
    Reason.EXECUTIONS_FAILING: _Transition(EventType.CRON),
    Reason.EXECUTIONS_UNFINISHED: _Transition(EventType.CRON),
    Reason.EXECUTIONS_RECOVERED: _Transition(EventType.CRON, ends=True),
    Reason.EXECUTION_FAILED: _Transition(EventType.CRON, once=True),
    Reason.CERTIFICATE_EXPIRING: _Transition(EventType.CERTIFICATE),
    Reason.CERTIFICATE_RENEWED: _Transition(EventType.CERTIFICATE, ends=True),
    Reason.CERTIFICATE_FAILED: _Transition(EventType.CERTIFICATE, once=True),
    Reason.CERTIFICATE_UNUSABLE: _Transition(EventType.CERTIFICATE, once=True),
    Reason.VOLUME_NEARLY_FULL: _Transition(EventType.VOLUME),
    Reason.VOLUME_HAS_ROOM: _Transition(EventType.VOLUME, ends=True),
    Reason.HOST_DISK_LOW: _Transition(EventType.VOLUME, once=True),
    Reason.SNAPSHOT_FAILED: _Transition(EventType.VOLUME, once=True),
    Reason.VOLUME_CHECK_FAILED: _Transition(EventType.VOLUME, once=True),
    Reason.DISK_FULL: _Transition(EventType.DAEMON),
    Reason.DISK_RECOVERED: _Transition(EventType.DAEMON, ends=True),
    Reason.LOCATION_UNREACHABLE: _Transition(EventType.DAEMON),
    Reason.LOCATION_REACHABLE: _Transition(EventType.DAEMON, ends=True),
    Reason.INTERNAL_ERROR: _Transition(EventType.DAEMON, once=True),
    Reason.SETTINGS_REFUSED: _Transition(EventType.DAEMON, once=True),
    Reason.SECRET_LOST: _Transition(EventType.DAEMON, once=True),
}
"""What the reason of an event says about troubles; other events say nothing."""

_BY_TEXT = {str(reason): transition for reason, transition in TRANSITIONS.items()}
_DISK = (Reason.DISK_FULL, Reason.DISK_RECOVERED)
"""Each source has an event of these, and there is one disk."""

_WORDS = {
    EventType.HEALTH: ("is unhealthy", "are unhealthy", "healthy again"),
    EventType.DRIFT: ("differs from Git", "differ from Git", "as in Git again"),
    EventType.CRON: ("has failing executions", "have failing executions", "well again"),
    EventType.CERTIFICATE: ("has a problem with a certificate", "have problems with certificates", "well again"),
    EventType.VOLUME: ("has a problem with a volume", "have problems with volumes", "well again"),
    EventType.DAEMON: ("has a problem", "have problems", "well again"),
}


class TroubleLog:
    """Records troubles and makes messages of them. Every method raises RecordsError; none commits by itself."""

    def __init__(self, records: Records, rules: Rules, outbox: Outbox) -> None:
        self._records = records
        self._rules = rules
        self._outbox = outbox

    def add_events(self, events: Sequence[Event], now: float) -> None:
        """Record what ``events`` say."""
        named = {event.key for event in events if event.reason in _BY_TEXT}
        owners = self._find_owners(named)
        for event in events:
            if event.reason == Reason.DELETED:
                for trouble in self._records.troubles.of_key(event.key):
                    self._close(EventType(trouble.event), trouble.key, trouble.location, now)
            elif (transition := _BY_TEXT.get(event.reason)) is not None:
                self._add_event(event, transition, owners.get(event.key, ""), now)

    def _add_event(self, event: Event, transition: _Transition, source: str, now: float) -> None:
        key, source = ("", "") if event.reason in _DISK else (event.key, source)
        if transition.ends:
            self._close(transition.kind, key, event.location, now)
            return
        trouble = Trouble(
            str(transition.kind),
            key,
            event.location,
            source,
            event.reason,
            event.message,
            event.at,
            transition.once,
        )
        self._open(trouble, now)

    def check_sources(self, names: Iterable[str], now: float) -> None:
        """Record which of the sources ``names`` are stale."""
        stale = set(self._records.conditions.scopes_with(ConditionType.SOURCE_STALE))
        for name in names:
            target = source_target(name)
            is_open = any(one.reason == ConditionType.SOURCE_STALE for one in self._records.troubles.of_key(target))
            if name in stale and not is_open:
                message = next(
                    one.message for one in self._records.conditions.get(name) if one.type == ConditionType.SOURCE_STALE
                )
                kind, reason = str(EventType.DAEMON), str(ConditionType.SOURCE_STALE)
                self._open(Trouble(kind, target, "", name, reason, message, now), now)
            elif is_open and name not in stale:
                self._close(EventType.DAEMON, target, "", now)

    def check_records(self, names: Iterable[str], now: float) -> None:
        """End troubles whose end was missed: of what is well or gone, and of sources other than ``names``."""
        known = {"", *names}
        for trouble in self._records.troubles.all():
            if trouble.source not in known:
                self._records.troubles.close(trouble.event, trouble.key, trouble.location)
            elif trouble.event == EventType.HEALTH and not self._is_unhealthy(trouble):
                self._close(EventType.HEALTH, trouble.key, trouble.location, now)

    def _is_unhealthy(self, trouble: Trouble) -> bool:
        record = self._records.applied.at(trouble.key, trouble.location)
        return record is not None and not record.health.is_good

    def send_due(self, now: float) -> None:
        """Write the messages that are due."""
        suspended: dict[str, bool] = {}
        for group in self._records.troubles.due_groups(now):
            if group.source and group.source not in suspended:
                target = source_target(group.source)
                suspended[group.source] = self._records.suspensions.get(target) is not None
            self._send_group(group, now, is_suspended=suspended.get(group.source, False))

    def _open(self, trouble: Trouble, now: float) -> None:
        if self._records.troubles.open(trouble):
            self._note_change(trouble, now)

    def _close(self, kind: EventType, key: str, location: str, now: float) -> None:
        for trouble in self._records.troubles.close(str(kind), key, location):
            self._note_change(trouble, now)

    def _note_change(self, trouble: Trouble, now: float) -> None:
        """Let the groups of ``trouble`` be due: a while after their first change, and an interval after a message."""
        subject = self._describe(EventType(trouble.event), [trouble], trouble.source)
        for channel in self._rules.by_channel:
            rule = self._rules.find_watching(channel, subject)
            if rule is None:
                continue
            group = self._records.troubles.group(channel, trouble.event, trouble.source)
            due = max(now + rule.wait, group.last + rule.interval if group.last else 0.0)
            is_reminder = group.due is not None and group.changes == 0
            due = group.due if group.due is not None and not is_reminder else end_quiet_hours(rule, due)
            self._records.troubles.put_group(msgspec.structs.replace(group, due=due, changes=group.changes + 1))

    def _send_group(self, group: TroubleGroup, now: float, *, is_suspended: bool) -> None:
        kind = EventType(group.event)
        members = [
            trouble
            for trouble in self._records.troubles.list(group.event, group.source)
            if group.channel in self._rules.by_channel
            and self._rules.find_watching(group.channel, self._describe(kind, [trouble], group.source))
        ]
        subject = self._describe(kind, members, group.source, group.reported)
        rule = self._rules.find_watching(group.channel, subject) if group.channel in self._rules.by_channel else None
        if rule is None:
            self._records.troubles.put_group(msgspec.structs.replace(group, due=None, changes=0))
            return
        mute = find_mute(self._records.mutes.all(), rule.name, subject)
        if is_suspended or mute is not None:
            # It is looked at again when the source is resumed, or the mute is over.
            again = max(now + rule.interval, mute.until if mute is not None else 0.0)
            self._records.troubles.put_group(msgspec.structs.replace(group, due=again))
            return
        keys = tuple(sorted({member.key for member in members}))
        if not _is_news(group, keys, rule, now):
            due = group.last + rule.repeat if rule.repeat and keys and group.reported else None
            self._records.troubles.put_group(msgspec.structs.replace(group, due=due, changes=0))
            return
        message = make_trouble_message(group, kind, members, now)
        if is_wanted(rule, message.state, recovers=not members):
            self._outbox.put(group.channel, rule, News(message, subject, f"{now}", now))
        self._end_group(group, members, rule, now)

    def _end_group(
        self, group: TroubleGroup, members: Sequence[Trouble], rule: NotificationRuleSettings, now: float
    ) -> None:
        for member in members:
            if member.once:
                self._records.troubles.close(member.event, member.key, member.location)
        reported = tuple(sorted({member.key for member in members if not member.once}))
        due = now + rule.repeat if rule.repeat and reported else None
        ended = group.incident + (not reported)
        after = msgspec.structs.replace(group, reported=reported, last=now, due=due, changes=0, incident=ended)
        self._records.troubles.put_group(after)

    def _describe(
        self, kind: EventType, members: Sequence[Trouble], source: str, reported: Sequence[str] = ()
    ) -> Subject:
        """What rules read of a message about ``members``, with the tags of their resources if a rule has some."""
        subject = _subject_of(kind, members, source, reported)
        if not self._rules.has_tags:
            return subject
        return msgspec.structs.replace(subject, tags=read_tags(self._records, subject.keys))

    def _find_owners(self, keys: set[str]) -> dict[str, str]:
        """The source of each of ``keys`` that has one."""
        owners = {key: key.removeprefix("source/") for key in keys if key.startswith("source/")}
        rest = [key for key in keys if key and key not in owners]
        for key, found in self._records.applied.get_many(rest, bodies=False).items() if rest else ():
            owners[key] = found[0].source
        return owners


def _subject_of(kind: EventType, members: Sequence[Trouble], source: str, reported: Sequence[str] = ()) -> Subject:
    """What rules read of a message about ``members``, or, if nothing is wrong any more, about what was ``reported``."""
    keys = tuple(dict.fromkeys(member.key for member in members)) or tuple(reported)
    gvcs = tuple(dict.fromkeys(gvc for key in keys if (gvc := gvc_of(key))))
    return Subject(kind, State.FAILURE if members else State.SUCCESS, not members, source, gvcs, keys)


def read_tags(records: Records, keys: Sequence[str]) -> frozenset[tuple[str, str]]:
    """The tags that any of ``keys`` has, as it was last applied; those of deleted resources are not known."""
    tags: set[tuple[str, str]] = set()
    for found in records.applied.get_many([key for key in keys if key and not key.startswith("source/")]).values():
        body = msgspec.json.decode(found[0].body)
        tags |= {(str(name), str(value)) for name, value in (body.get("tags") or {}).items()}
    return frozenset(tags)


def _is_news(group: TroubleGroup, keys: tuple[str, ...], rule: NotificationRuleSettings, now: float) -> bool:
    if not keys and not group.reported:
        return False  # it came and went before anybody was told
    if keys != group.reported:
        return True
    reminds = bool(rule.repeat) and now >= group.last + rule.repeat
    return reminds or group.changes >= FLAPS


def make_trouble_message(group: TroubleGroup, kind: EventType, members: Sequence[Trouble], now: float) -> Message:
    """What is said of ``members``, the troubles of ``group`` now; without any, that all is well again."""
    keys = list(dict.fromkeys(member.key for member in members))
    one, many, again = _WORDS[kind]
    names = keys or list(group.reported)
    what = _name_keys(names, group.source)
    ending = (one if len(names) == 1 else many) if keys else f"{'is' if len(names) == 1 else 'are'} {again}"
    flaps = [f"It changed {group.changes} times since {format_duration(now - group.last)} ago."]
    recovered = sorted(set(group.reported) - set(keys)) if keys else []
    lines = [
        *_list_causes(members),
        *([f"{_name_keys(recovered, '')} {'is' if len(recovered) == 1 else 'are'} {again}"] if recovered else []),
        *(flaps if group.last and group.changes >= FLAPS else []),
    ]
    shown = members[:MOST_RESOURCES]
    return Message(
        id=f"{kind}/{group.source}/{group.incident}",
        sequence=0,
        event=kind,
        state=State.FAILURE if members else State.SUCCESS,
        severity=Severity.ERROR if kind is not EventType.DRIFT else Severity.WARNING,
        title=f"{what} {ending}",
        at=now,
        source=group.source,
        lines=tuple(lines),
        resources=tuple(MessageResource(m.key, "", m.location, m.reason, m.message) for m in shown),
        left_out=len(members) - len(shown),
        counts={"troubled": len(keys)} if keys else {},
    )


def _name_keys(keys: Sequence[str], source: str) -> str:
    """``workload/shop/api``, or ``3 resources of main``."""
    if len(keys) == 1:
        return keys[0] or "the daemon"
    of = f" of {source}" if source else ""
    return f"{len(keys)} resources{of}"


def _list_causes(members: Sequence[Trouble]) -> Iterator[str]:
    """One line for each cause that several of ``members`` share, most first."""
    causes = Counter(member.message for member in members)
    if len(members) > 1:
        for message, count in causes.most_common(3):
            if count > 1:
                yield f"{count} of them: {message}"
