"""Requests about notifications: to mute something, and to try a rule."""

from __future__ import annotations

from reconciler.errors import RefusedError
from reconciler.model.key import Key
from reconciler.notifications.collector import request_test
from reconciler.notifications.gvc_rules import load_rules
from reconciler.queries.existence import check_gvc, check_present, did_you_mean, find_source
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.records.notifications.troubles import Mute
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.settings.notifications import NotificationSettings
from reconciler.times import format_iso_time

LONGEST_REASON = 500
"""The most characters of a reason."""


def mute_target(settings: Settings, records: Records, mute: Mute) -> str:
    """Record ``mute``; returns the message for the operator. Raises RefusedError, and NotFoundError for the target."""
    check_target(settings, records, mute.target)
    if not mute.reason or len(mute.reason) > LONGEST_REASON:
        raise RefusedError(f"a mute has a reason that others read, of up to {LONGEST_REASON} characters: --reason TEXT")
    records.mutes.put(mute.target, mute.reason, mute.by, mute.until)
    return f"nothing is sent about {mute.target} until {format_iso_time(mute.until)}; to end it: {_end_of(mute.target)}"


def unmute_target(records: Records, target: str) -> str:
    """End the mute of ``target``; returns the message for the operator. Raises RefusedError if there is none."""
    if not records.mutes.remove(target):
        raise RefusedError(f"{target} is not muted; `reconciler mute` lists what is")
    return f"messages about {target} are sent again"


def check_target(settings: Settings, records: Records, target: str) -> None:
    """Raise NotFoundError or RefusedError unless ``target`` is something that can be muted."""
    kind, _, name = target.partition("/")
    if target == "all":
        return
    if kind == "rule":
        find_rule(settings, records, name)
    elif kind == "source":
        find_source(settings, name)
    elif kind == "gvc" and name:
        check_gvc(records, name)
    else:
        try:
            key = Key.parse(target)
        except ValueError:
            forms = "all, rule/NAME, source/NAME, gvc/NAME, or a key such as workload/GVC/NAME"
            raise RefusedError(f"{target[:100]!r} cannot be muted; write {forms}") from None
        check_present(records, key)


def send_test(settings: Settings, records: Records, rule: str, by: str, now: float) -> list[int]:
    """Let the channels of ``rule`` ("": of all rules) have a test; returns the numbers of the messages.

    Raises RefusedError and NotFoundError.
    """
    notifications = _require_notifications(settings)
    names = [find_rule(settings, records, rule)] if rule else list(load_rules(notifications, records).by_name)
    return [
        number for name in names for number in request_test(records, _require_notifications(settings), name, by, now)
    ]


def find_rule(settings: Settings, records: Records, name: str) -> str:
    """The name of a rule of the settings or of a GVC. Raises RefusedError if there is none of ``name``."""
    rules = load_rules(_require_notifications(settings), records).by_name
    if name not in rules:
        raise RefusedError(f"there is no rule {name[:60]!r}{did_you_mean(name, list(rules))}")
    return name


def are_ended(records: Records, numbers: list[int]) -> bool:
    """Whether each of the messages ``numbers`` was sent, or will not be."""
    waits = (DeliveryStatus.WAITING, DeliveryStatus.SENDING)
    found = [records.deliveries.get(number) for number in numbers]
    return all(delivery is None or (delivery.status not in waits) for delivery in found)


def _require_notifications(settings: Settings) -> NotificationSettings:
    if settings.notifications is None:
        raise RefusedError("the settings have no `notifications`: nothing is sent; docs/notifications.md shows them")
    return settings.notifications


def _end_of(target: str) -> str:
    return f"reconciler mute {target} --end"
