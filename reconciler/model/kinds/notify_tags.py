"""The tags of a GVC by which its team is sent messages: to which channels, about what, how serious, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.model.finding import Flaw
from reconciler.times import DURATIONS, is_time_zone, parse_duration

NOTIFY = "reconciler/notify"
NOTIFY_EVENTS = "reconciler/notify-events"
NOTIFY_SEVERITY = "reconciler/notify-severity"
NOTIFY_QUIET_HOURS = "reconciler/notify-quiet-hours"
NOTIFY_DIGEST = "reconciler/notify-digest"
NOTIFY_REPEAT = "reconciler/notify-repeat"
NOTIFY_TAGS = (NOTIFY, NOTIFY_EVENTS, NOTIFY_SEVERITY, NOTIFY_QUIET_HOURS, NOTIFY_DIGEST, NOTIFY_REPEAT)

EVENTS = ("run", "health", "drift", "volume", "cron")
"""What a GVC can be sent: not what is about others too, such as a refused revision, a certificate, or the daemon."""
USUAL = ("run", "health", "volume", "cron")
"""The events without the tag."""
SEVERITIES = ("info", "warning", "error", "critical")
MOST_CHANNELS = 20
SHORTEST_REPEAT = 300.0
"""Seconds; it is the interval of these rules, within which nothing is sent again."""
_TIME = r"((?:[01][0-9]|2[0-3]):[0-5][0-9])"
_ZONE = r"(?: +([A-Za-z0-9_+/-]{1,100}))?"
_QUIET_HOURS = re.compile(rf"{_TIME} *- *{_TIME}{_ZONE}")
_DIGEST = re.compile(rf"{_TIME}{_ZONE}")
EVERY_GVC = "*"
"""In ``gvcs`` of a channel: it is open to all."""


class QuietHours(NamedTuple):
    """From ``begin`` to ``end``, times of day such as 22:00 in the time zone ``zone``, messages wait."""

    begin: str
    end: str
    zone: str


class DigestTime(NamedTuple):
    """The time of day such as 08:00, in the time zone ``zone``, of the one message a day."""

    at: str
    zone: str


class NotifyRule(NamedTuple):
    """What a GVC wants: each event of ``events`` that is at least ``severity``, to ``channels``.

    What is still wrong is sent again after ``repeat`` seconds; 0: never.
    """

    channels: tuple[str, ...]
    events: tuple[str, ...] = USUAL
    severity: str = SEVERITIES[0]
    quiet_hours: QuietHours | None = None
    digest: DigestTime | None = None
    repeat: float = 0.0


def split_names(text: str) -> tuple[str, ...]:
    """``a, b`` → ("a", "b"), each once."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def parse_notify_tags(tags: Mapping[str, Any]) -> NotifyRule | None:
    """The rule in ``tags``, without what is invalid there; None if they have none."""
    channels = split_names(str(tags.get(NOTIFY, "")))[:MOST_CHANNELS]
    if not channels:
        return None
    events = tuple(name for name in split_names(str(tags.get(NOTIFY_EVENTS, ""))) if name in EVENTS)
    severity = str(tags.get(NOTIFY_SEVERITY, ""))
    return NotifyRule(
        channels,
        events or USUAL,
        severity if severity in SEVERITIES else SEVERITIES[0],
        _parse_quiet_hours(str(tags.get(NOTIFY_QUIET_HOURS, ""))),
        _parse_digest(str(tags.get(NOTIFY_DIGEST, ""))),
        _parse_repeat(str(tags.get(NOTIFY_REPEAT, ""))) or 0.0,
    )


def _parse_quiet_hours(text: str) -> QuietHours | None:
    """``22:00-07:00 Europe/Berlin`` → its parts; without a zone, UTC. None if it is invalid."""
    match = _QUIET_HOURS.fullmatch(text.strip())
    if match is None or match[1] == match[2] or not is_time_zone(match[3] or "UTC"):
        return None
    return QuietHours(match[1], match[2], match[3] or "UTC")


def _parse_digest(text: str) -> DigestTime | None:
    """``08:00 Europe/Berlin`` → its parts; without a zone, UTC. None if it is invalid."""
    match = _DIGEST.fullmatch(text.strip())
    if match is None or not is_time_zone(match[2] or "UTC"):
        return None
    return DigestTime(match[1], match[2] or "UTC")


def _parse_repeat(text: str) -> float | None:
    """``4h`` → its seconds; None if it is invalid, or shorter than SHORTEST_REPEAT."""
    try:
        seconds = parse_duration(text.strip())
    except ValueError:
        return None
    return seconds if seconds >= SHORTEST_REPEAT else None


def find_notify_faults(tags: Mapping[str, Any]) -> Iterator[Flaw]:
    """What is wrong with the tags of a GVC."""
    channels = split_names(str(tags.get(NOTIFY, "")))
    if NOTIFY in tags and not channels:
        yield Flaw(("tags", NOTIFY), "the tag names no channel", "name channels of the settings, separated by commas")
    if len(channels) > MOST_CHANNELS:
        yield Flaw(("tags", NOTIFY), f"the tag names {len(channels)} channels", f"name at most {MOST_CHANNELS}")
    for tag in NOTIFY_TAGS[1:]:
        if tag in tags and NOTIFY not in tags:
            yield Flaw(("tags", tag), "the tag has no effect alone", f"add the channels: `{NOTIFY}`")
    unknown = [name for name in split_names(str(tags.get(NOTIFY_EVENTS, ""))) if name not in EVENTS]
    for name in unknown[:5]:
        yield Flaw(
            ("tags", NOTIFY_EVENTS), f"a GVC is sent no event `{name[:60]}`", f"name some of: {', '.join(EVENTS)}"
        )
    severity = tags.get(NOTIFY_SEVERITY)
    if severity is not None and str(severity) not in SEVERITIES:
        yield Flaw(
            ("tags", NOTIFY_SEVERITY),
            f"`{str(severity)[:60]}` is no severity",
            f"write one of: {', '.join(SEVERITIES)}",
        )
    yield from _find_time_faults(tags)


def _find_time_faults(tags: Mapping[str, Any]) -> Iterator[Flaw]:
    """What is wrong with the tags of a GVC that say when messages are sent."""
    quiet, digest, repeat = tags.get(NOTIFY_QUIET_HOURS), tags.get(NOTIFY_DIGEST), tags.get(NOTIFY_REPEAT)
    zone = "; the time zone is one that this host knows, without it UTC"
    if quiet is not None and _parse_quiet_hours(str(quiet)) is None:
        message = f"`{str(quiet)[:60]}` is no time from one hour of the day to another"
        yield Flaw(("tags", NOTIFY_QUIET_HOURS), message, f"write such as 22:00-07:00 Europe/Berlin{zone}")
    if digest is not None and _parse_digest(str(digest)) is None:
        message = f"`{str(digest)[:60]}` is no time of day"
        yield Flaw(("tags", NOTIFY_DIGEST), message, f"write such as 08:00 Europe/Berlin{zone}")
    if repeat is not None and _parse_repeat(str(repeat)) is None:
        message = f"`{str(repeat)[:60]}` is no duration of at least 5 minutes"
        yield Flaw(("tags", NOTIFY_REPEAT), message, f"write {DURATIONS}, from 5m on")
    if quiet is not None and digest is not None:
        message = "the tag has no effect beside a digest, which is one message a day"
        yield Flaw(("tags", NOTIFY_QUIET_HOURS), message, f"remove it, or `{NOTIFY_DIGEST}`")


def is_open(gvcs: tuple[str, ...], gvc: str) -> bool:
    """Whether a channel with ``gvcs`` is open to the rule of ``gvc``."""
    return gvc in gvcs or EVERY_GVC in gvcs
