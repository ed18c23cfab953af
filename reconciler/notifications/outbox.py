"""The outbox: what is to be sent. A thing only proceeds, and the newest that is known of it is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from reconciler.notifications.message import EventType, Message, State
from reconciler.notifications.outcomes import make_digest_message, make_left_message, make_superseded_message
from reconciler.notifications.rules import Rules, Subject, end_quiet_hours, find_mute, is_wanted, next_digest
from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.records.notifications.troubles import Mute
from reconciler.records.store import Records
from reconciler.settings.notifications import NotificationRuleSettings

_RANKS = {State.NONE: 0, State.PENDING: 1, State.RUNNING: 2, State.SUCCESS: 3, State.FAILURE: 3, State.SUPERSEDED: 3}
"""A thing never goes to a state of a lower rank."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def decode_message(delivery: Delivery) -> Message:
    """The message of ``delivery``, as it was last changed."""
    message = _decode(delivery.message)
    return msgspec.structs.replace(message, sequence=delivery.sequence, may_repeat=delivery.may_repeat)


class News(NamedTuple):
    """A message, what rules read of it, and the time. ``fingerprint`` is what of it is news, beside its state."""

    message: Message
    subject: Subject
    fingerprint: str
    at: float


class Outbox:
    """Writes deliveries. Every method raises RecordsError; none commits by itself."""

    def __init__(self, records: Records, rules: Rules) -> None:
        self._records = records
        self._rules = rules

    def send(self, news: News) -> None:
        """Let every channel have ``news`` whose rules want it, unless it has it already."""
        for channel, rule in self._rules.find(news.subject):
            self.put(channel, rule, news)

    def is_new(self, news: News) -> bool:
        """Whether ``send`` would let any channel have ``news``."""
        channels = (channel for channel, _ in self._rules.find(news.subject))
        lasts = (self._records.deliveries.last(channel, news.message.id) for channel in channels)
        return any(last is None or self._is_again(last, news) or _is_news(last, news) for last in lasts)

    def put(self, channel: str, rule: NotificationRuleSettings, news: News) -> None:
        """Let ``channel`` have ``news`` by ``rule``, unless it has it already.

        It takes the place of a former message about the same thing that still waits. After one that was sent, it waits
        until the interval of the rule is over if it is another end of the same thing. A forge has a commit anew when
        its source comes to it again.
        """
        deliveries = self._records.deliveries
        last = deliveries.last(channel, news.message.id)
        is_again = last is not None and self._is_again(last, news)
        if last is not None and not is_again and not _is_news(last, news):
            return
        fresh = self._make_delivery(channel, rule, news)
        if last is not None and is_again and last.status is DeliveryStatus.WAITING:
            # In its place, the new one would come before what was said of other commits meanwhile.
            deliveries.end(last.id, DeliveryStatus.EXPIRED, news.at, "the source came to the commit again since")
        elif last is not None and last.status in (DeliveryStatus.WAITING, DeliveryStatus.COLLECTED):
            deliveries.replace_waiting(msgspec.structs.replace(fresh, id=last.id))
            return
        if last is not None and last.ended is not None and State(last.state).is_final:
            fresh = msgspec.structs.replace(fresh, due=max(news.at, last.ended + rule.interval))
        mute = find_mute(self._list_mutes(channel, rule), rule.name, news.subject)
        if mute is not None:
            answer = f"muted by {mute.by}: {mute.reason}"
            fresh = msgspec.structs.replace(fresh, status=DeliveryStatus.MUTED, ended=news.at, answer=answer)
        elif rule.digest is not None and news.message.event is not EventType.TEST:
            due = next_digest(rule.digest, news.at)
            fresh = msgspec.structs.replace(fresh, due=due, status=DeliveryStatus.COLLECTED)
        elif news.message.event is not EventType.TEST:
            fresh = msgspec.structs.replace(fresh, due=end_quiet_hours(rule, fresh.due))
        deliveries.add(fresh)

    def _is_again(self, last: Delivery, news: News) -> bool:
        """Whether ``news`` is of a commit to which its source came again after ``last``, as by a rollback."""
        if last.channel not in self._rules.forges or news.message.state is State.SUPERSEDED:
            return False
        return decode_message(last).since != news.message.since

    def _list_mutes(self, channel: str, rule: NotificationRuleSettings) -> list[Mute]:
        """The mutes that count for ``channel``: at a forge only its own, else a commit would be running for ever."""
        mutes = self._records.mutes.all()
        if channel not in self._rules.forges:
            return list(mutes)
        return [mute for mute in mutes if mute.target == f"rule/{rule.name}"]

    def _make_delivery(self, channel: str, rule: NotificationRuleSettings, news: News) -> Delivery:
        message, sequence = news.message, self._records.deliveries.next_sequence()
        return Delivery(
            rule.name,
            channel,
            message.id,
            message.source,
            str(message.state),
            sequence,
            news.fingerprint,
            _encode(msgspec.structs.replace(message, sequence=sequence)),
            news.at,
            news.at,
        )

    def send_digests(self, now: float) -> None:
        """Make one message for each channel and rule of what was collected for a digest that is due."""
        groups: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in self._records.deliveries.list_collected(now):
            groups.setdefault((delivery.channel, delivery.rule), []).append(delivery)
        for (channel, rule), collected in groups.items():
            message = make_digest_message(rule, [decode_message(delivery) for delivery in collected], now)
            settings = NotificationRuleSettings(rule, (channel,))
            fresh = self._make_delivery(
                channel, settings, News(message, Subject(message.event, message.state), "", now)
            )
            number = self._records.deliveries.add(fresh)
            for delivery in collected:
                self._records.deliveries.end(delivery.id, DeliveryStatus.DIGESTED, now, f"part of the message {number}")

    def supersede(self, source: str, commit: str, now: float) -> None:
        """End what is pending or running of other commits of ``source``, since ``commit`` takes their place."""
        for last in self._records.deliveries.list_unfinished(source):
            former = decode_message(last)
            if former.commit not in ("", commit):
                self._end(last, former, make_superseded_message(former, commit, now))

    def leave(self, source: str, why: str, now: float, forges: Mapping[str, Collection[str] | None]) -> None:
        """End what is pending or running of ``source``, which is not followed any more: ``why`` is a sentence.

        At forges, only the commits of ``forges`` end (None: all); at others nobody can say so.
        """
        for last in self._records.deliveries.list_unfinished(source):
            former = decode_message(last)
            commits = forges.get(last.channel, ()) if last.channel in self._rules.forges else None
            if former.commit and (commits is None or former.commit in commits):
                self._end(last, former, make_left_message(former, why, now))

    def _end(self, last: Delivery, former: Message, message: Message) -> None:
        rule = self._rules.by_name.get(last.rule)
        if rule is None or last.channel not in self._rules.by_channel:
            return
        # Who was told that it began is told that it ended.
        if is_wanted(rule, State.SUPERSEDED, recovers=False) or is_wanted(rule, former.state, recovers=False):
            subject = Subject(former.event, message.state, sources=(message.source,))
            self.put(last.channel, rule, News(message, subject, "", message.at))


def _is_news(last: Delivery, news: News) -> bool:
    """Whether ``news`` says more than ``last`` about their thing, and not something former."""
    former, message = State(last.state), news.message
    if former is State.SUPERSEDED and not message.state.is_final:
        return False
    if message.state is State.SUPERSEDED and former.is_final:
        return False
    if _RANKS[message.state] < _RANKS[former]:
        return False
    return (str(message.state), news.fingerprint) != (last.state, last.fingerprint)
