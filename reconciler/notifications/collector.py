"""Makes deliveries of what the records say: outcomes of runs, events, and conditions of sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from reconciler.access.approvers import describe_approvers, read_approvers
from reconciler.clock import Clock
from reconciler.notifications.gvc_rules import drop_closed, load_rules, refresh_rules
from reconciler.notifications.message import EventType, Message, State
from reconciler.notifications.outbox import News, Outbox
from reconciler.notifications.outcomes import (
    MOST_KEYS,
    RunNotice,
    decode_notice,
    fingerprint_run,
    get_run_state,
    make_approval_message,
    make_run_message,
)
from reconciler.notifications.rules import OWN_RULE, Rules, Subject, gvc_of, read_tags
from reconciler.notifications.severity import Severity
from reconciler.notifications.troubles import TroubleLog
from reconciler.reasons import Reason
from reconciler.records.notifications.deliveries import Notice
from reconciler.records.notifications.troubles import Trouble
from reconciler.records.store import Records
from reconciler.records.tables.events import Event
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.settings.notifications import NotificationSettings

if TYPE_CHECKING:
    from reconciler.notifications.forge_repositories import FormerRepository

BATCH = 1_000
"""The most notices, and the most events, of one transaction."""


class Collector:
    """Reads what is new in the records and writes deliveries, once for each: both are one transaction.

    Every method raises RecordsError.
    """

    def __init__(self, settings: Settings, records: Records, clock: Clock) -> None:
        assert settings.notifications is not None
        self._all_settings = settings
        self._sources = [source.name for source in settings.sources]
        self._records = records
        self._clock = clock
        self._settings = settings.notifications
        self._former = _list_former(settings.notifications, records)
        self._rules = Rules(settings.notifications, self._list_forge_sources(settings))
        self._outbox = Outbox(records, self._rules)
        self._troubles = TroubleLog(records, self._rules, self._outbox)

    def open(self) -> None:
        """Begin: what a crash cut off is sent again, marked; of events before the first beginning, nothing is said."""
        self._rules.replace_own(load_rules(self._settings, self._records).own.values())
        with self._records.transaction():
            if self._records.notices.cursor() is None:
                self._records.notices.skip_events()
            self._records.deliveries.recover()
            self._records.deliveries.drop_channels(list(self._rules.by_channel), self._clock.now())
            drop_closed(self._rules, self._records, self._clock.now())
            self._records.troubles.drop_groups(list(self._rules.by_channel))
            self._records.mutes.sweep()
            self._troubles.check_records(self._sources, self._clock.now())
            self._troubles.check_rules(self._clock.now())
        # What is known of sources that are not followed any more comes before their end.
        self.collect()
        with self._records.transaction():
            self._leave_sources(self._clock.now())

    def _leave_sources(self, now: float) -> None:
        """End what is pending or running of sources that the settings have no longer, or not at the same forge."""
        records = self._records
        for source in records.deliveries.list_unfinished_sources():
            is_gone = source not in self._sources
            former = [one for one in self._former if one.repository.source == source]
            forges = {one.repository.forge: None if is_gone else one.commits for one in former}
            if is_gone or former:
                why = f"the source {source} was removed from the settings" if is_gone else former[0].why
                self._outbox.leave(source, why, now, forges)
        records.notices.leave_commits(self._sources, now)

    def _list_forge_sources(self, settings: Settings) -> dict[str, tuple[str, ...]]:
        """The sources of each forge; also those that were removed, of which not all is said yet."""
        sources = list_forge_sources(settings, self._settings)
        for former in self._former:
            name = former.repository.source
            if name not in self._sources and former.repository.forge in sources:
                sources[former.repository.forge] += (name,)
        return sources

    def collect(self) -> None:
        """Make deliveries of all that is new."""
        while self._collect_batch():
            pass

    def next_due(self) -> float | None:
        """When something is to be said though nothing new happens; seconds since the epoch, or None."""
        times = (self._troubles.next_check(), self._records.deliveries.next_due())
        return min((time for time in times if time is not None), default=None)

    def _collect_batch(self) -> bool:
        """Make deliveries of some; returns whether there may be more."""
        records, now = self._records, self._clock.now()
        notices = records.notices.list(BATCH)
        cursor = records.notices.cursor() or 0
        events = records.events.list(after_id=cursor, limit=BATCH)
        gvcs = {event.key for event in events if event.key.startswith(OWN_RULE)}
        with records.transaction():
            if gvcs and refresh_rules(self._rules, self._settings, records, sorted(gvcs)):
                records.troubles.wake_reported(now)
                drop_closed(self._rules, records, now)
                self._troubles.check_rules(now)
            for notice in notices:
                self._add_outcome(notice)
            if notices:
                records.notices.drop(notices[-1].id)
            if events:
                self._troubles.add_events(events, now)
                self._follow_tags(events, now)
                records.notices.set_cursor(events[-1].id)
            self._troubles.check_sources(self._sources, now)
            more = len(notices) == BATCH or len(events) == BATCH
            if not more:
                self._troubles.send_due(now)
                self._outbox.send_digests(now)
        return more

    def _follow_tags(self, events: Sequence[Event], now: float) -> None:
        """Let channels be sent what is open and has a tag by now that a rule wants."""
        updated = {event.key for event in events if event.reason == Reason.UPDATED} if self._rules.has_tags else ()
        if any(self._records.troubles.of_key(key) for key in updated):
            self._troubles.check_rules(now)

    def _add_outcome(self, notice: Notice) -> None:
        run = decode_notice(notice.body)
        state = get_run_state(run)
        trouble, recovers = self._follow_source(run, state, notice.at)
        message = make_run_message(run, notice.at, recovers=recovers)
        tags = read_tags(self._records, run.keys) if self._rules.has_tags else frozenset()
        subject = Subject(message.event, state, recovers, (run.source,), run.gvcs, tags=tags, severity=message.severity)
        subject = msgspec.structs.replace(subject, is_whole=is_of_gvcs(run))
        if run.commit:
            since = self._records.notices.come_to_commit(run.source, run.commit, notice.at)
            message = msgspec.structs.replace(message, since=since)
            self._outbox.supersede(run.source, run.commit, notice.at)
        # A failure after a success of the same commit is news, though it is the same failure as before that.
        fingerprint = f"{fingerprint_run(run)}/{trouble:.3f}"
        if state is State.SUCCESS:
            # So is a success after another commit, such as by a rollback.
            since = self._records.notices.follow_commit(run.source, run.commit, notice.at, recovers=recovers)
            fingerprint += f"/{since:.3f}" * bool(since)
        self._outbox.send(News(message, subject, fingerprint, notice.at))
        asked = self._follow_approvals(run, state, notice.at)
        if run.waiting:
            self._ask_approval(run, tags, asked, notice.at)

    def _ask_approval(self, run: RunNotice, tags: frozenset[tuple[str, str]], asked: float, at: float) -> None:
        """Ask those who may approve what waits since ``asked``; policies are read only if somebody is to be asked."""
        approval = make_approval_message(run, at)
        about = Subject(
            approval.event, State.NONE, sources=(run.source,), gvcs=run.gvcs, tags=tags, severity=approval.severity
        )
        news = News(approval, about, f"{asked:.3f}", at)
        if self._outbox.is_new(news):
            who = describe_approvers(read_approvers(self._records, self._all_settings))
            self._outbox.send(news._replace(message=make_approval_message(run, at, who)))

    def _follow_approvals(self, run: RunNotice, state: State, at: float) -> float:
        """Since when steps of the source wait for an approval; 0: none do, or the run does not say.

        Steps that wait again are news, though they are those of an approval that was asked for before.
        """
        troubles, target, kind = self._records.troubles, source_target(run.source), str(EventType.APPROVAL)
        if run.waiting:
            troubles.open(Trouble(kind, target, "", run.source, Reason.APPROVAL_REQUIRED, run.hold_digest, at))
            return next(one.since for one in troubles.find(kind, target, ""))
        if state is State.SUCCESS:
            troubles.close(kind, target)
        return 0.0

    def _follow_source(self, run: RunNotice, state: State, at: float) -> tuple[float, bool]:
        """Since when runs of the source fail (0: they do not), and whether ``run`` ends that."""
        troubles, target, kind = self._records.troubles, source_target(run.source), str(EventType.RUN)
        if state is State.FAILURE:
            troubles.open(Trouble(kind, target, "", run.source, run.outcome, run.message, at))
            return next(one.since for one in troubles.of_key(target) if one.event == kind), False
        if state is State.SUCCESS:
            return 0.0, bool(troubles.close(kind, target))
        return 0.0, False


def _list_former(notifications: NotificationSettings, records: Records) -> list[FormerRepository]:
    if not notifications.forges:
        return []
    from reconciler.notifications.forge_repositories import (
        list_former_repositories,  # with modules that others do without
    )

    return list_former_repositories(records)


def list_forge_sources(settings: Settings, notifications: NotificationSettings) -> dict[str, tuple[str, ...]]:
    """Forge → the sources that have their repositories there."""
    if not notifications.forges:
        return {}
    from reconciler.notifications.forges.address import has_source  # with modules that others do without

    return {
        name: tuple(source.name for source in settings.sources if has_source(forge, source))
        for name, forge in notifications.forges.items()
    }


def is_of_gvcs(run: RunNotice) -> bool:
    """Whether all that ``run`` changes, as far as it names it, belongs to one GVC."""
    keys = {*run.keys, *(resource.key for resource in run.resources)}
    is_all = len(run.keys) < MOST_KEYS and not run.findings
    return is_all and len({gvc_of(key) for key in keys}) == 1 and len(run.gvcs) == 1


def make_test_message(rule: str, by: str, at: float) -> Message:
    """A message by which ``by`` tries the rule ``rule``."""
    return Message(
        id=f"test/{rule}/{at:.3f}",
        sequence=0,
        event=EventType.TEST,
        severity=Severity.INFO,
        title=f"A test of the rule {rule}",
        at=at,
        lines=(f"{by} tries whether messages arrive. Nothing has happened.",),
    )


def request_test(records: Records, notifications: NotificationSettings, rule: str, by: str, now: float) -> list[int]:
    """Let each channel of ``rule`` have a test message; returns the numbers of the deliveries. Raises RecordsError."""
    rules = load_rules(notifications, records)
    outbox = Outbox(records, rules)
    chosen = rules.by_name[rule]
    message = make_test_message(rule, by, now)
    with records.transaction():
        for channel in chosen.channels:
            outbox.put(channel, chosen, News(message, Subject(EventType.TEST, State.NONE), "", now))
        last = [records.deliveries.last(channel, message.id) for channel in chosen.channels]
    return [delivery.id for delivery in last if delivery is not None]
