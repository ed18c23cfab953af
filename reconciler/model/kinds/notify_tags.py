"""The tags of a GVC by which its team is sent messages: to which channels, about what, and how serious."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.model.finding import Flaw

NOTIFY = "reconciler/notify"
NOTIFY_EVENTS = "reconciler/notify-events"
NOTIFY_SEVERITY = "reconciler/notify-severity"
NOTIFY_TAGS = (NOTIFY, NOTIFY_EVENTS, NOTIFY_SEVERITY)

EVENTS = ("run", "health", "drift", "volume", "cron")
"""What a GVC can be sent: not what is about others too, such as a refused revision, a certificate, or the daemon."""
USUAL = ("run", "health", "volume", "cron")
"""The events without the tag."""
SEVERITIES = ("info", "warning", "error", "critical")
MOST_CHANNELS = 20
EVERY_GVC = "*"
"""In ``gvcs`` of a channel: it is open to all."""


class NotifyRule(NamedTuple):
    """What a GVC wants: each event of ``events`` that is at least ``severity``, to ``channels``."""

    channels: tuple[str, ...]
    events: tuple[str, ...] = USUAL
    severity: str = SEVERITIES[0]


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
    return NotifyRule(channels, events or USUAL, severity if severity in SEVERITIES else SEVERITIES[0])


def find_notify_faults(tags: Mapping[str, Any]) -> Iterator[Flaw]:
    """What is wrong with the tags of a GVC."""
    channels = split_names(str(tags.get(NOTIFY, "")))
    if NOTIFY in tags and not channels:
        yield Flaw(("tags", NOTIFY), "the tag names no channel", "name channels of the settings, separated by commas")
    if len(channels) > MOST_CHANNELS:
        yield Flaw(("tags", NOTIFY), f"the tag names {len(channels)} channels", f"name at most {MOST_CHANNELS}")
    for tag in (NOTIFY_EVENTS, NOTIFY_SEVERITY):
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


def is_open(gvcs: tuple[str, ...], gvc: str) -> bool:
    """Whether a channel with ``gvcs`` is open to the rule of ``gvc``."""
    return gvc in gvcs or EVERY_GVC in gvcs
