"""Rules: which messages go to which channel, and which of them are held for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from reconciler.notifications.message import EventType, State
from reconciler.notifications.severity import Severity
from reconciler.records.notifications.troubles import Mute
from reconciler.records.store import Records
from reconciler.settings.notifications import DigestSettings, NotificationRuleSettings, NotificationSettings

OWN_RULE = "gvc/"
"""How the names of the rules of GVCs begin; those of the settings have no slash."""


class Subject(msgspec.Struct, frozen=True):
    """What rules and mutes read of a message.

    ``sources`` and ``gvcs`` are all that it is about; no GVCs without ``keys``: any. ``keys`` are the resources that it
    names; with ``is_whole``, these GVCs have all that it is about. ``tags`` are those of its resources, read only if a
    rule has some; None: any, since they are not known any more.
    """

    event: EventType
    state: State
    recovers: bool = False
    sources: tuple[str, ...] = ()
    gvcs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: frozenset[tuple[str, str]] | None = frozenset()
    severity: Severity = Severity.INFO
    is_whole: bool = True


class Rules:
    """The rules of the settings and of GVCs, by channel in their order: the first one that fits decides.

    Without rules in the settings, each channel has one of its own, but for those that are open to GVCs.
    ``forge_sources`` names the sources of each forge, which is sent nothing about others.
    """

    def __init__(self, settings: NotificationSettings, forge_sources: Mapping[str, tuple[str, ...]] = {}) -> None:
        usual = (name for name, channel in settings.channels.items() if not channel.gvcs)
        rules = settings.rules or tuple(NotificationRuleSettings(name, (name,)) for name in usual)
        forges = (make_forge_rule(forge, forge_sources.get(forge, ())) for forge in settings.forges)
        self._rules = (*rules, *forges)
        self._channels = (*settings.channels, *settings.forges)
        self.forges = frozenset(settings.forges)
        self.has_tags = any(rule.tags for rule in rules)
        self.replace_own(())

    def replace_own(self, own: Iterable[NotificationRuleSettings]) -> None:
        """Take ``own`` as the rules of GVCs, which come after those of the settings."""
        self.own = {rule.name: rule for rule in own}
        rules = (*self._rules, *(self.own[name] for name in sorted(self.own)))
        self.by_name = {rule.name: rule for rule in rules}
        by_channel: dict[str, list[NotificationRuleSettings]] = {channel: [] for channel in self._channels}
        for rule in rules:
            for channel in rule.channels:
                by_channel[channel].append(rule)
        self.by_channel = {channel: tuple(found) for channel, found in by_channel.items()}

    def find(self, subject: Subject) -> list[tuple[str, NotificationRuleSettings]]:
        """Each channel that ``subject`` goes to, with the rule that says so."""
        chosen = ((channel, self.find_for(channel, subject)) for channel in self.by_channel)
        return [(channel, rule) for channel, rule in chosen if rule is not None]

    def find_for(self, channel: str, subject: Subject) -> NotificationRuleSettings | None:
        """The first rule by which ``subject`` goes to ``channel``."""
        return next((rule for rule in self.by_channel[channel] if _matches_subject(rule, subject)), None)

    def find_watching(self, channel: str, subject: Subject) -> NotificationRuleSettings | None:
        """The first rule of ``channel`` for the troubles of ``subject``, whether they begin or end."""
        return next((rule for rule in self.by_channel[channel] if _is_about(rule, subject)), None)


def make_forge_rule(forge: str, sources: tuple[str, ...] = ()) -> NotificationRuleSettings:
    """The rule of the forge of that name: all that happens to a commit of ``sources`` (none: any) is shown at once."""
    events = (str(EventType.RUN), str(EventType.REFUSED))
    states = tuple(str(state) for state in State if state is not State.NONE)
    return NotificationRuleSettings(forge, (forge,), events, states, sources, wait=0.0, interval=0.0)


def _matches_subject(rule: NotificationRuleSettings, subject: Subject) -> bool:
    return _is_about(rule, subject) and is_wanted(rule, subject.state, recovers=subject.recovers)


def _is_about(rule: NotificationRuleSettings, subject: Subject) -> bool:
    if subject.event not in rule.events or subject.severity.rank < Severity(rule.severity).rank:
        return False
    if rule.name.startswith(OWN_RULE) and not (subject.gvcs and subject.is_whole):
        return False
    if rule.sources and not set(rule.sources) & set(subject.sources):
        return False
    if subject.tags is not None and not set(rule.tags.items()) <= subject.tags:
        return False
    anywhere = not rule.gvcs or (not subject.gvcs and not subject.keys)
    return anywhere or bool(set(rule.gvcs) & set(subject.gvcs))


def is_wanted(rule: NotificationRuleSettings, state: State, *, recovers: bool) -> bool:
    """Whether ``rule`` sends what is in ``state``; a fact is always sent."""
    return state is State.NONE or str(state) in rule.states or (recovers and "recovery" in rule.states)


def find_mute(mutes: Iterable[Mute], rule: str, subject: Subject) -> Mute | None:
    """The mute of ``subject``, which ``rule`` would send: of all its resources, if it names some."""
    muted = {mute.target: mute for mute in mutes}
    of_sources = [muted.get(f"source/{source}") for source in subject.sources]
    whole = muted.get("all") or muted.get(f"rule/{rule}") or (of_sources[0] if of_sources and all(of_sources) else None)
    if whole is not None or not muted:
        return whole
    members: Sequence[Sequence[str]] = [(key, f"gvc/{gvc_of(key)}") for key in subject.keys] or [
        (f"gvc/{gvc}",) for gvc in subject.gvcs
    ]
    of_members = [next((muted[name] for name in names if name in muted), None) for names in members]
    return of_members[0] if of_members and all(of_members) else None


def gvc_of(key: str) -> str:
    """The GVC of a key as text: ``shop`` for ``workload/shop/api`` and for ``gvc/shop``, "" for others."""
    parts = key.split("/")
    return parts[1] if len(parts) == 3 or (parts[0] == "gvc" and len(parts) == 2) else ""


def end_quiet_hours(rule: NotificationRuleSettings, at: float) -> float:
    """When a message that is due at ``at`` is sent by ``rule``: then, or at the end of its quiet hours."""
    quiet = rule.quiet_hours
    if quiet is None:
        return at
    zone = ZoneInfo(quiet.zone)
    now = datetime.fromtimestamp(at, zone)
    begin, end = time.fromisoformat(quiet.begin), time.fromisoformat(quiet.end)
    clock = now.time()
    is_quiet = begin <= clock < end if begin <= end else clock >= begin or clock < end
    if not is_quiet:
        return at
    day = now.date() + timedelta(days=clock >= end)
    # A time that a change of the clock skips is that of the other offset.
    return max(at, datetime.combine(day, end, zone).timestamp())


def next_digest(settings: DigestSettings, at: float) -> float:
    """When the next digest after ``at`` is due."""
    zone = ZoneInfo(settings.zone)
    now, clock = datetime.fromtimestamp(at, zone), time.fromisoformat(settings.at)
    days = (now.date() + timedelta(days=number) for number in range(3))
    # Where the clock is set back, an hour that is over comes a second time.
    return next(due for day in days if (due := datetime.combine(day, clock, zone).timestamp()) > at)


def read_tags(records: Records, keys: Sequence[str]) -> frozenset[tuple[str, str]]:
    """The tags that any of ``keys`` has, as it was last applied; those of deleted resources are not known."""
    tags: set[tuple[str, str]] = set()
    for found in records.applied.get_many([key for key in keys if key and not key.startswith("source/")]).values():
        body = msgspec.json.decode(found[0].body)
        tags |= {(str(name), str(value)) for name, value in (body.get("tags") or {}).items()}
    return frozenset(tags)
