"""Tags with a meaning: whether their keys and values are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from reconciler.manifests.rules.registry import Section, register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.notify_tags import NOTIFY_TAGS, find_notify_faults
from reconciler.model.kinds.volumeset import VolumeSet, parse_keep_last
from reconciler.model.kinds.workload import Workload, mounted_volumesets
from reconciler.model.no_wake import NO_WAKE, no_wake_faults
from reconciler.model.platform import (
    ADOPT,
    KEEP_LAST,
    NEW_VERSION,
    POST_SNAPSHOT,
    PRE_SNAPSHOT,
    PROTECTED_TAG,
    SNAPSHOT_ON,
    VERIFY_SCHEDULE,
    VERIFY_SNAPSHOT,
)
from reconciler.model.snapshot_check import schedule_fault
from reconciler.model.suggest import find_closest_word

SECTION = Section.MANIFESTS

_OWN = "reconciler/"
_TRUTH = frozenset({"true", "false"})
_SNAPSHOT_TAGS = (SNAPSHOT_ON, PRE_SNAPSHOT, POST_SNAPSHOT, VERIFY_SNAPSHOT, VERIFY_SCHEDULE)
_TAKEN = {
    ADOPT: _TRUTH,
    PROTECTED_TAG: _TRUTH,
    "reconciler/allow-replace": _TRUTH,
    "reconciler/prune": frozenset({"disabled", "enabled"}),
    SNAPSHOT_ON: frozenset({NEW_VERSION}),
}
"""Tag → its valid values; other tags accept every text."""
_KNOWN = (
    ADOPT,
    "reconciler/allow-replace",
    "reconciler/depends-on",
    "reconciler/ignore",
    NO_WAKE,
    *NOTIFY_TAGS,
    "reconciler/prune",
    KEEP_LAST,
    *_SNAPSHOT_TAGS,
)
MOST = 20
"""The maximum of reported tags of a document, which may have 50."""


@register_warning("tag-without-effect", "docs/manifests.md#tags", *Kind)
def check_tags(resource: Envelope) -> Iterator[Flaw]:
    """A tag that the platform or the reconciler reads has a valid key and value.

    `platform/protected`, `reconciler/adopt` and `reconciler/allow-replace` are true or false, `reconciler/prune` is
    disabled or enabled, `reconciler/snapshot-on` is new-version, `reconciler/snapshot-keep-last` is a number on a
    volume set, and `reconciler/verify-schedule` is a cron schedule beside `reconciler/verify-snapshot`. Another value,
    or an unknown tag that begins with `reconciler/`, has no effect: the resource may be deleted or replaced all the
    same.
    """
    reported = 0
    for tag, text in resource.tags.items():
        if not tag.startswith((_OWN, PROTECTED_TAG)) or reported == MOST:
            continue
        if tag in _CHECKED:
            reported += 1
            yield from _CHECKED[tag](resource, str(text))
            continue
        taken = _TAKEN.get(tag)
        if taken is not None and str(text) not in taken:
            reported += 1
            yield Flaw(
                ("tags", tag),
                f"{quote_text(str(text))} has no effect here",
                f"write {_suggest_value(taken, str(text))}",
            )
        elif taken is None and tag.startswith(_OWN) and tag not in _KNOWN:
            reported += 1
            near = find_closest_word(tag[:60], _KNOWN)
            hint = f"did you mean `{near}`?" if near else f"tags of this kind are {', '.join(_KNOWN)}"
            yield Flaw(("tags", tag), f"the tag {quote_text(tag)} is unknown", hint, on_key=True)


@register_warning("notify-tags", "docs/notifications.md#rules-of-a-team", *Kind)
def notify_without_effect(resource: Envelope) -> Iterator[Flaw]:
    """The tag `reconciler/notify` is on a GVC, and those that begin like it have valid values beside it.

    Another event or severity has no effect: what is sent is what is sent without the tag.
    """
    if not any(tag in resource.tags for tag in NOTIFY_TAGS):
        return
    if isinstance(resource, Gvc):
        yield from find_notify_faults(resource.tags)
        return
    for tag in (name for name in NOTIFY_TAGS if name in resource.tags):
        yield Flaw(("tags", tag), "the tag has no effect here", "put it on the GVC", on_key=True)


@register_rule("no-wake", "docs/manifests.md#tags", Kind.WORKLOAD)
def no_wake_entry(workload: Workload) -> Iterator[Flaw]:
    """The entries of the tag `reconciler/no-wake` are paths and user agents.

    An entry that begins with a slash is a path, or with `*` at its end a prefix of paths; any other is a part of a user
    agent. A wrong entry would let every probe start a replica.
    """
    text = workload.tags.get(NO_WAKE)
    if text is not None:
        for entry, fault in no_wake_faults(str(text)):
            hint = "write paths and user agents, separated by commas: /healthz, /internal/*, UptimeRobot"
            yield Flaw(("tags", NO_WAKE), f"{quote_text(entry)}: {fault}" if entry else fault, hint)


@register_warning("no-wake-unused", "docs/manifests.md#tags", *Kind)
def no_wake_without_effect(resource: Envelope) -> Iterator[Flaw]:
    """The tag `reconciler/no-wake` is on a workload that scales to zero.

    It has no effect elsewhere: only where no replica runs, a request starts one.
    """
    if NO_WAKE not in resource.tags:
        return
    scales = isinstance(resource, Workload) and any(
        options.autoscaling.min_scale == 0 for options in (resource.spec.default_options, *resource.spec.local_options)
    )
    if not scales:
        hint = "remove it, or write `minScale: 0`" if isinstance(resource, Workload) else "remove it"
        yield Flaw(("tags", NO_WAKE), "the tag has no effect: nothing here scales to zero", hint, on_key=True)


@register_warning("snapshot-on-unused", "docs/platform/volumeset.md#snapshots-before-a-release", *Kind)
def snapshot_on_without_effect(resource: Envelope) -> Iterator[Flaw]:
    """Tags about snapshots, such as `reconciler/snapshot-on`, are on a workload that mounts a volume set.

    The others are `reconciler/pre-snapshot`, `post-snapshot`, `verify-snapshot` and `verify-schedule`. They have no
    effect elsewhere: a rollback finds no snapshot to restore, and no command runs.
    """
    for tag in (text for text in _SNAPSHOT_TAGS if text in resource.tags):
        if not isinstance(resource, Workload):
            yield Flaw(("tags", tag), "the tag has no effect here", "put it on the workload", on_key=True)
        elif resource.spec.type != "stateful" or not mounted_volumesets(resource.spec):
            yield Flaw(("tags", tag), "the tag has no effect: nothing here has a volume", "remove it", on_key=True)


def _keep_last_flaws(resource: Envelope, text: str) -> Iterator[Flaw]:
    if not isinstance(resource, VolumeSet):
        yield Flaw(("tags", KEEP_LAST), "the tag has no effect here", "put it on the volume set", on_key=True)
    elif parse_keep_last(text) is None:
        yield Flaw(("tags", KEEP_LAST), f"{quote_text(text)} has no effect here", "write a number from 1 to 9999")


def _schedule_flaws(resource: Envelope, text: str) -> Iterator[Flaw]:
    if fault := schedule_fault(text):
        yield Flaw(("tags", VERIFY_SCHEDULE), fault, "write a cron schedule in UTC, such as `0 4 * * 0`")
    elif VERIFY_SNAPSHOT not in resource.tags:
        hint = f"add the command that checks a snapshot: `{VERIFY_SNAPSHOT}`"
        yield Flaw(("tags", VERIFY_SCHEDULE), "the tag has no effect alone", hint, on_key=True)


_CHECKED: Mapping[str, Callable[[Envelope, str], Iterator[Flaw]]] = {
    KEEP_LAST: _keep_last_flaws,
    VERIFY_SCHEDULE: _schedule_flaws,
}
"""Tag → what checks its value."""


def _suggest_value(taken: frozenset[str], text: str) -> str:
    """The value that was probably meant, or all values."""
    return next(
        (f'"{option}"' for option in taken if option == text.lower()),
        " or ".join(f'"{text}"' for text in sorted(taken)),
    )
