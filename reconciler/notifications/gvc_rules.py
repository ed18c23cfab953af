"""Rules in the manifests of GVCs, by which a team is sent what is about its own GVC."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.model.key import Kind
from reconciler.model.kinds.notify_tags import is_open, parse_notify_tags
from reconciler.model.record import Record
from reconciler.notifications.rules import OWN_RULE, Rules
from reconciler.records.store import Records
from reconciler.settings.notifications import (
    DigestSettings,
    NotificationRuleSettings,
    NotificationSettings,
    QuietHoursSettings,
)


def load_rules(notifications: NotificationSettings, records: Records) -> Rules:
    """The rules of the settings, and those of the GVCs that are applied. Raises RecordsError."""
    rules = Rules(notifications)
    rules.replace_own(
        rule
        for record in records.applied.items(kind=Kind.GVC)
        if (rule := make_gvc_rule(record, notifications)) is not None
    )
    return rules


def refresh_rules(rules: Rules, notifications: NotificationSettings, records: Records, keys: Iterable[str]) -> bool:
    """Read the rules of the GVCs ``keys`` again; returns whether any is another one. Raises RecordsError."""
    own = dict(rules.own)
    for key in keys:
        own.pop(key, None)
        found = records.applied.get(key)
        rule = make_gvc_rule(found[0], notifications) if found else None
        if rule is not None:
            own[key] = rule
    if own == rules.own:
        return False
    rules.replace_own(own.values())
    return True


def make_gvc_rule(record: Record, notifications: NotificationSettings) -> NotificationRuleSettings | None:
    """The rule in the manifest of a GVC, with the channels that are open to it; None if it has no such."""
    tags = msgspec.json.decode(record.body).get("tags")
    notify_rule = parse_notify_tags(tags) if isinstance(tags, dict) else None
    if notify_rule is None:
        return None
    gvc, channels = record.key.name, notifications.channels
    usable = tuple(name for name in notify_rule.channels if name in channels and is_open(channels[name].gvcs, gvc))
    if not usable:
        return None
    quiet, digest = notify_rule.quiet_hours, notify_rule.digest
    return NotificationRuleSettings(
        f"{OWN_RULE}{gvc}",
        usable,
        notify_rule.events,
        gvcs=(gvc,),
        severity=notify_rule.severity,
        quiet_hours=None if quiet is None else QuietHoursSettings(*quiet),
        digest=None if digest is None else DigestSettings(*digest),
        repeat=notify_rule.repeat,
    )


def drop_closed(rules: Rules, records: Records, now: float) -> None:
    """End what waits by a rule of a GVC that is no more, or for a channel that the rule has no longer.

    It may wait for hours, in quiet hours or for a digest. Raises RecordsError.
    """
    records.deliveries.drop_rules(OWN_RULE, {name: rule.channels for name, rule in rules.own.items()}, now)
