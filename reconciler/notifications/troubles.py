"""Troubles: what is wrong and has not ended, from events and conditions, and the messages about it.

Troubles of one kind and cause are one message. The first one comes when some time has passed, the next ones at
intervals; in between, changes are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from reconciler.notifications.causes import BACKUPS, MANY, MOST_CAUSES, find_cause, is_shared, list_shared
from reconciler.notifications.inhibition import Inhibition, read_inhibition
from reconciler.notifications.message import EventType, State
from reconciler.notifications.outbox import News, Outbox
from reconciler.notifications.rules import Rules, Subject, end_quiet_hours, find_mute, gvc_of, is_wanted, read_tags
from reconciler.notifications.severity import Severity, choose_worst, grade_reason
from reconciler.notifications.trouble_messages import FLAPS, WORDS, make_trouble_message
from reconciler.reasons import ConditionType, Reason
from reconciler.records.notifications.troubles import Trouble, TroubleGroup
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings.notifications import NotificationRuleSettings

SAME_CAUSE_SECONDS = 600.0
"""What fails again within this time has the cause that it had, whatever its text says now."""
RETURN_SECONDS = 30.0
"""Seconds in which what runs at a location is observed after it answers again."""
MUTE_SECONDS = 300.0
"""Seconds after which is looked whether what is muted still is."""
KEEP_GROUPS_SECONDS = 30 * 86_400.0
"""Seconds for which is remembered what was said of a cause that has ended."""
_MOST_FORMER = 10_000


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
    Reason.BACKUP_STALE: _Transition(EventType.DAEMON),
    Reason.BACKUP_FAILED: _Transition(EventType.DAEMON),
    Reason.BACKUP_RECOVERED: _Transition(EventType.DAEMON, ends=True),
    Reason.INTERNAL_ERROR: _Transition(EventType.DAEMON, once=True),
    Reason.SETTINGS_REFUSED: _Transition(EventType.DAEMON, once=True),
    Reason.SECRET_LOST: _Transition(EventType.DAEMON, once=True),
}
"""What the reason of an event says about troubles; other events say nothing."""

_BY_TEXT = {str(reason): transition for reason, transition in TRANSITIONS.items()}
_DISK = (Reason.DISK_FULL, Reason.DISK_RECOVERED)
"""Each source has an event of these, and there is one disk."""
_BACKUPS = (Reason.BACKUP_STALE, Reason.BACKUP_FAILED, Reason.BACKUP_RECOVERED)
"""These have no key, and end nothing else that is wrong with the daemon."""

_CONDITIONS = frozenset({EventType.HEALTH, EventType.DRIFT, EventType.CRON})
"""Events of which a resource has one trouble at a place, whatever its reason is now."""


class TroubleLog:
    """Records troubles and makes messages of them. Every method raises RecordsError; none commits by itself."""

    def __init__(self, records: Records, rules: Rules, outbox: Outbox) -> None:
        self._records = records
        self._rules = rules
        self._outbox = outbox
        self._former: dict[tuple[str, str, str], tuple[str, float]] = {}
        self._returning: dict[str, float] = {}

    def add_events(self, events: Sequence[Event], now: float) -> None:
        """Record what ``events`` say."""
        named = {event.key for event in events if event.reason in _BY_TEXT}
        owners = self._find_owners(named)
        if any(event.reason == Reason.ADOPTED for event in events):
            self.follow_moves(now)
        for event in events:
            if event.reason == Reason.DELETED:
                for trouble in self._records.troubles.of_key(event.key):
                    self._close(EventType(trouble.event), trouble.key, trouble.location, now)
            elif event.reason == Reason.RESUMED:
                self._records.troubles.wake_inhibited(now)
            elif (transition := _BY_TEXT.get(event.reason)) is not None:
                self._add_event(event, transition, owners.get(event.key, ""), now)

    def _add_event(self, event: Event, transition: _Transition, source: str, now: float) -> None:
        key, source = ("", "") if event.reason in _DISK else (event.key, source)
        key = BACKUPS if event.reason in _BACKUPS else key
        location = event.key.removeprefix("location/")
        if event.reason == Reason.LOCATION_REACHABLE:
            self._returning[location] = now + RETURN_SECONDS
        elif event.reason == Reason.LOCATION_UNREACHABLE:
            self._returning.pop(location, None)
        if transition.ends:
            self._close(transition.kind, key, event.location, now, facts=transition.kind in _CONDITIONS)
            return
        trouble = Trouble(
            str(transition.kind),
            key,
            event.location,
            source,
            event.reason,
            event.message,
            now if transition.once else event.at,
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
        """End troubles whose end was missed: of what is well or gone, and of sources other than ``names`` themselves.

        What another source has now is a trouble of that one. What no source has any more stays: it still runs, and
        another source may take it over.
        """
        for key in self._records.troubles.list_keys(str(EventType.DAEMON), str(Reason.LOCATION_UNREACHABLE)):
            # The daemon says so again if it is still away, and nothing if it is back.
            self._returning[key.removeprefix("location/")] = now + RETURN_SECONDS
        self.follow_moves(now)
        sources, troubles = {"", *names}, self._records.troubles.all()
        owners = self._find_owners({trouble.key for trouble in troubles})
        for trouble in troubles:
            is_of_source = trouble.key == source_target(trouble.source)
            is_gone = trouble.source not in sources and (is_of_source or trouble.key not in owners)
            if is_gone and EventType(trouble.event) not in WORDS:
                self._records.troubles.close(trouble.event, trouble.key, trouble.location)
            elif is_gone or (trouble.event == EventType.HEALTH and not self._is_unhealthy(trouble)):
                self._close(EventType(trouble.event), trouble.key, trouble.location, now)

    def follow_moves(self, now: float) -> None:
        """Let each trouble be one of the source that has its resource now, and let channels be told that want it there.

        What nobody was told of yet does not wait for what was muted or held of its former source.
        """
        troubles = self._records.troubles.all()
        owners = self._find_owners({trouble.key for trouble in troubles})
        moved = [one for one in troubles if one.source != owners.get(one.key, one.source)]
        for trouble in moved:
            self._records.troubles.move(trouble, owners[trouble.key])
            fresh = msgspec.structs.replace(trouble, source=owners[trouble.key])
            for channel, rule in self._list_watching(fresh):
                group = self._records.troubles.timer(channel, trouble.event, trouble.cause)
                if group.due is not None and group.changes:
                    due = min(group.due, _choose_due(group, rule, now))
                    self._records.troubles.set_timer(msgspec.structs.replace(group, due=due))
        if moved:
            self._records.troubles.wake_inhibited(now)
            self.check_rules(now)

    def _is_unhealthy(self, trouble: Trouble) -> bool:
        record = self._records.applied.at(trouble.key, trouble.location)
        return record is not None and not record.health.is_good

    def next_check(self) -> float | None:
        """When something is to be said, or a location that answers again to be looked at."""
        times = (self._records.troubles.next_due(), *self._returning.values())
        return min((time for time in times if time is not None), default=None)

    def send_due(self, now: float) -> None:
        """Write the messages that are due."""
        self._check_locations(now)
        groups = self._records.troubles.due_groups(now)
        if not groups:
            return
        merged = [event for event in sorted({group.event for group in groups}) if self._merge_causes(event)]
        inhibition = read_inhibition(self._records, self._returning)
        for group in self._records.troubles.due_groups(now) if merged else groups:
            self._send_group(group, inhibition, now)
        self._records.troubles.sweep(now - KEEP_GROUPS_SECONDS)

    def _check_locations(self, now: float) -> None:
        """Look at locations that answer again, or did not when this process began, and end what is well there.

        While a location did not answer, nothing was known of what runs there, and no event says that it is well.
        """
        for location in [name for name, at in self._returning.items() if at <= now]:
            del self._returning[location]
            target = f"location/{location}"
            is_lost = bool(self._records.troubles.find(str(EventType.DAEMON), target, ""))
            if is_lost and self._records.applied.is_unknown(location):
                self._returning[location] = now + RETURN_SECONDS
                continue
            self._close(EventType.DAEMON, target, "", now, facts=False)
            troubles = self._records.troubles.list_at(str(EventType.HEALTH), location)
            for trouble in troubles:
                if self._is_well(trouble):
                    self._close(EventType.HEALTH, trouble.key, location, now)
            self._records.troubles.wake_inhibited(now)

    def _is_well(self, trouble: Trouble) -> bool:
        record = self._records.applied.at(trouble.key, trouble.location)
        return record is not None and record.health.is_good

    def _merge_causes(self, event: str) -> bool:
        """Make one of very many causes that nobody was told of; returns whether there were as many."""
        causes = list_shared(self._records.troubles.list_unreported(event))
        if len(causes) <= MOST_CAUSES:
            return False
        self._records.troubles.merge_causes(event, causes, MANY)
        return True

    def _open(self, trouble: Trouble, now: float) -> None:
        kind, cause = EventType(trouble.event), self._choose_cause(trouble, now)
        there = self._records.troubles.find(trouble.event, trouble.key, trouble.location)
        former = next((one for one in there if kind in _CONDITIONS or one.cause == cause), None)
        fresh = msgspec.structs.replace(trouble, cause=cause if former is None else former.cause)
        self._records.troubles.open(fresh)
        if former is None or former.once or grade_reason(trouble.reason).rank > grade_reason(former.reason).rank:
            self._note_change(fresh, now)

    def _choose_cause(self, trouble: Trouble, now: float) -> str:
        cause, until = self._former.pop((trouble.event, trouble.key, trouble.location), ("", 0.0))
        if cause and now <= until:
            return cause
        cause, troubles = find_cause(trouble), self._records.troubles
        is_one_of_many = is_shared(cause) and troubles.has_cause(trouble.event, MANY)
        return MANY if is_one_of_many and not troubles.has_cause(trouble.event, cause) else cause

    def _close(self, kind: EventType, key: str, location: str, now: float, *, facts: bool = True) -> None:
        for trouble in self._records.troubles.close(str(kind), key, location, facts=facts):
            if kind in _CONDITIONS:
                self._former[trouble.event, key, trouble.location] = (trouble.cause, now + SAME_CAUSE_SECONDS)
            if len(self._former) > _MOST_FORMER:
                del self._former[next(iter(self._former))]
            self._note_change(trouble, now)

    def _note_change(self, trouble: Trouble, now: float) -> None:
        """Let the groups of ``trouble`` be due: a while after their first change, and an interval after a message."""
        watching = dict(self._list_watching(trouble))
        for channel in self._rules.by_channel.keys() - self._rules.forges:
            group = self._records.troubles.timer(channel, trouble.event, trouble.cause)
            rule = watching.get(channel)
            if rule is None and group.last and not group.changes:
                rule = self._find_former_rule(trouble, channel)
            if rule is not None:
                self._set_timer(group, rule, now)

    def _find_former_rule(self, trouble: Trouble, channel: str) -> NotificationRuleSettings | None:
        """The rule by which ``channel`` was told of ``trouble``, which has another source or other tags by now."""
        group = self._records.troubles.group(channel, trouble.event, trouble.cause)
        if trouble.key not in group.reported:
            return None
        subject = _make_subject(EventType(trouble.event), [trouble], group)
        return self._rules.find_watching(channel, _make_former_subject(subject, group))

    def check_rules(self, now: float) -> None:
        """Let channels be sent what is open and was not reported to them: a rule is new, or wants more than before.

        Facts are not: they were over when they were sent.
        """
        reported: dict[tuple[str, str, str], frozenset[str] | None] = {}
        members = (one for one in self._records.troubles.all() if not one.once and EventType(one.event) in WORDS)
        for trouble in members:
            for channel, rule in self._list_watching(trouble):
                group_key = (channel, trouble.event, trouble.cause)
                if group_key not in reported:
                    group = self._records.troubles.group(*group_key)
                    reported[group_key] = None if group.changes or group.is_inhibited else frozenset(group.reported)
                keys = reported[group_key]
                if keys is not None and trouble.key not in keys:
                    self._set_timer(self._records.troubles.timer(*group_key), rule, now)
                    reported[group_key] = None

    def _list_watching(self, trouble: Trouble) -> Iterator[tuple[str, NotificationRuleSettings]]:
        """Each channel that is sent ``trouble``, with the rule that says so."""
        subject = self._describe(EventType(trouble.event), [trouble])
        for channel in self._rules.by_channel:
            if (rule := self._rules.find_watching(channel, subject)) is not None:
                yield channel, rule

    def _set_timer(self, group: TroubleGroup, rule: NotificationRuleSettings, now: float) -> None:
        due = _choose_due(group, rule, now)
        if group.due is not None and (group.changes or group.is_inhibited):
            due = min(due, group.due)
        self._records.troubles.set_timer(msgspec.structs.replace(group, due=due, changes=group.changes + 1))

    def _send_group(self, group: TroubleGroup, inhibition: Inhibition, now: float) -> None:
        kind, members = EventType(group.event), self._list_members(group)
        owners = self._find_owners(set(group.reported) - {member.key for member in members})
        news = compare_group(group, members, inhibition, owners)
        subject = self._describe(kind, news.members or members, group, owners)
        rule, is_former = self._choose_rule(group, subject), False
        if rule is None and group.reported and group.channel in self._rules.by_channel:
            rule, is_former = self._rules.find_watching(group.channel, _make_former_subject(subject, group)), True
        if rule is None:
            # Who is not sent this any more is not sent its end either.
            incident = group.incident + bool(group.reported)
            after = msgspec.structs.replace(group, incident=incident, reported=(), severity="", due=None, changes=0)
            self._records.troubles.put_group(msgspec.structs.replace(after, is_inhibited=False))
            return
        if is_former and news.members and not news.recovered:
            # Whom its source or tags are no longer of is told of its end, and of nothing before that.
            due = now + rule.interval if news.is_inhibited else None
            after = msgspec.structs.replace(group, due=due, changes=0, is_inhibited=news.is_inhibited)
            self._records.troubles.put_group(after)
            return
        mute = find_mute(self._records.mutes.all(), rule.name, subject)
        if mute is not None:
            # A mute may end before its time, or the rules of another source may count by then.
            again = max(now + 1.0, min(now + MUTE_SECONDS, mute.until))
            self._records.troubles.put_group(msgspec.structs.replace(group, due=again))
            return
        if not news.is_news(group, rule, now):
            due = choose_next_due(group, news, rule, now)
            changes = group.changes if news.is_inhibited else 0
            after = msgspec.structs.replace(group, due=due, changes=changes, is_inhibited=news.is_inhibited)
            self._records.troubles.put_group(after)
            return
        message = make_trouble_message(group, kind, news.members, now, news.recovered)
        if is_wanted(rule, message.state, recovers=not news.members):
            self._outbox.put(group.channel, rule, News(message, subject, f"{now}", now))
        self._end_group(group, news, rule, now)

    def _list_members(self, group: TroubleGroup) -> list[Trouble]:
        """The troubles that the channel of ``group`` is told of: what it was told stays, though it is less serious."""
        if group.channel not in self._rules.by_channel:
            return []
        kind, reported = EventType(group.event), frozenset(group.reported)
        return [
            trouble
            for trouble in self._records.troubles.list(group.event, group.cause)
            if not (trouble.once and trouble.since <= group.last)
            and (trouble.key in reported or self._rules.find_watching(group.channel, self._describe(kind, [trouble])))
        ]

    def _end_group(self, group: TroubleGroup, news: GroupNews, rule: NotificationRuleSettings, now: float) -> None:
        facts = {member.key for member in news.members if member.once}
        ongoing = {member.key for member in news.members if not member.once}
        reported = tuple(key for key in news.keys if key in ongoing or key not in facts)
        sources = (member.source for member in news.members if member.source)
        former = group.sources if group.reported else ()
        worst = choose_worst([news.severity, *([Severity(group.severity)] if group.reported else [])])
        after = msgspec.structs.replace(
            group,
            sources=tuple(sorted({*sources, *former})) if reported else (),
            incident=group.incident + (not reported),
            reported=reported,
            severity=str(worst) if reported else "",
            last=now,
            changes=0,
            is_inhibited=news.is_inhibited,
        )
        due = choose_next_due(after, news, rule, now)
        self._records.troubles.put_group(msgspec.structs.replace(after, due=due))

    def _choose_rule(self, group: TroubleGroup, subject: Subject) -> NotificationRuleSettings | None:
        known = group.channel in self._rules.by_channel
        return self._rules.find_watching(group.channel, subject) if known else None

    def _describe(
        self,
        kind: EventType,
        members: Sequence[Trouble],
        group: TroubleGroup | None = None,
        owners: Mapping[str, str] = {},
    ) -> Subject:
        """What rules read of a message about ``members``, with the tags of their resources if a rule has some.

        ``owners`` has the source of each key that ``group`` reported and that is well.
        """
        subject = _make_subject(kind, members, group, owners)
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


class GroupNews(NamedTuple):
    """What of a group can be said now.

    ``members`` are troubles that are not inhibited, or that were reported; ``keys`` what is troubled as far as the
    channel may know, ``recovered`` what no longer is. ``is_quiet``: all that could be said now is about what is
    inhibited; ``is_inhibited``: something waits for the end of that.
    """

    members: Sequence[Trouble]
    keys: tuple[str, ...]
    recovered: tuple[str, ...]
    is_quiet: bool
    is_inhibited: bool

    @property
    def severity(self) -> Severity:
        """That of the worst member."""
        return choose_worst(grade_reason(member.reason) for member in self.members)

    def is_news(self, group: TroubleGroup, rule: NotificationRuleSettings, now: float) -> bool:
        """Whether a message says more than the last one of ``group``."""
        if self.is_quiet or not (self.keys or group.reported):
            return False  # it is held, or came and went before anybody was told
        if self.keys != group.reported:
            return True
        if group.severity and self.severity.rank > Severity(group.severity).rank:
            return True
        reminds = bool(rule.repeat) and now >= group.last + rule.repeat
        return reminds or group.changes >= FLAPS


def compare_group(
    group: TroubleGroup, members: Sequence[Trouble], inhibition: Inhibition, owners: Mapping[str, str] = {}
) -> GroupNews:
    """What of ``members``, all troubles of ``group`` now, can be said in spite of ``inhibition``.

    ``owners`` has the source of each key that was reported and is well; of what is gone, it is the one of the group.
    """
    former = group.sources[0] if len(group.sources) == 1 else ""
    reported, troubled = set(group.reported), {member.key for member in members}
    inhibited = {member.key for member in members if inhibition.covers(member)}
    well = reported - troubled
    hidden_ends = {key for key in well if inhibition.covers_key(key, owners.get(key, former))}
    shown = [member for member in members if member.key in reported or member.key not in inhibited]
    keys = tuple(sorted({member.key for member in shown} | hidden_ends))
    recovered = tuple(sorted(well - hidden_ends))
    is_silent = {member.key for member in shown} <= inhibited and (bool(hidden_ends) or not recovered)
    is_quiet = bool(inhibited or hidden_ends) and is_silent
    return GroupNews(shown, keys, recovered, is_quiet, bool(inhibited - reported or hidden_ends))


def choose_next_due(group: TroubleGroup, news: GroupNews, rule: NotificationRuleSettings, now: float) -> float | None:
    """When ``group`` is looked at again though nothing changes: to remind of it, or because something of it is held."""
    times = [group.last + rule.repeat] if rule.repeat and group.reported else []
    # A suspension ends without a word if its time is over.
    times += [now + rule.interval] if news.is_inhibited else []
    return max(now + min(rule.interval, rule.repeat or rule.interval), min(times)) if times else None


def _choose_due(group: TroubleGroup, rule: NotificationRuleSettings, now: float) -> float:
    """When ``rule`` says something about ``group`` that changes now."""
    return end_quiet_hours(rule, max(now + rule.wait, group.last + rule.interval if group.last else 0.0))


def _make_former_subject(subject: Subject, group: TroubleGroup) -> Subject:
    """``subject`` as it was when ``group`` was told of it: of its sources then, with any tags."""
    return msgspec.structs.replace(subject, sources=group.sources, tags=None)


def _make_subject(
    kind: EventType, members: Sequence[Trouble], group: TroubleGroup | None, owners: Mapping[str, str] = {}
) -> Subject:
    """What rules read of a message about ``members``, or, without any, about the end of what ``group`` reported."""
    keys = tuple(dict.fromkeys(member.key for member in members)) or (group.reported if group is not None else ())
    gvcs = tuple(dict.fromkeys(gvc for key in keys if (gvc := gvc_of(key))))
    former = [Severity(group.severity)] if group is not None and group.severity else []
    severity = choose_worst([*former, *(grade_reason(member.reason) for member in members)])
    sources = tuple(dict.fromkeys(member.source for member in members if member.source))
    if group is not None and not members:
        gone = group.sources if len(owners) < len(group.reported) else ()
        sources = tuple(sorted({*owners.values(), *gone}))
    state = State.FAILURE if members else State.SUCCESS
    return Subject(kind, state, not members, sources, gvcs, keys, severity=severity)
