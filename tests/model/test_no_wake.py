"""The tag reconciler/no-wake: what its entries mean."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.no_wake import LONGEST_ENTRY, MOST_ENTRIES, NoWake, no_wake_faults, parse_no_wake, read_no_wake


def test_an_entry_is_a_path_a_prefix_or_a_user_agent() -> None:
    found = parse_no_wake("/healthz, /internal/*,UptimeRobot , kube-probe/1.30")
    assert found == NoWake(("/healthz",), ("/internal/",), ("UptimeRobot", "kube-probe/1.30"))
    assert found
    assert not NoWake()


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("", "empty"),
        ("/*", "no request at all"),
        ("/a*b", "only allowed at the end"),
        ("Uptime*", "only allowed at the end"),
        ("/a b", "no blank"),
        ("/a?b=c", "query"),
        ("/\u00e4", "ASCII"),
        ("a\tb", "printable"),
        ("x" * (LONGEST_ENTRY + 1), "at most 200"),
    ],
)
def test_an_invalid_entry_is_named_and_has_no_effect(entry: str, fault: str) -> None:
    [(named, why)] = no_wake_faults(f"/healthz, {entry}")
    assert named == entry
    assert fault in why
    assert parse_no_wake(f"/healthz, {entry}") == NoWake(("/healthz",))


def test_entries_beyond_the_limit_are_one_fault() -> None:
    text = ", ".join(f"/{number}" for number in range(MOST_ENTRIES + 5))
    assert list(no_wake_faults(text)) == [("/20", "there are 25 entries, and 20 are allowed")]
    assert len(parse_no_wake(text).paths) == MOST_ENTRIES


def test_the_tag_is_read_from_the_body_of_a_workload() -> None:
    body = {"kind": "workload", "tags": {"reconciler/no-wake": "/healthz", "team": 1}, "spec": {}}
    assert read_no_wake(msgspec.json.encode(body)) == NoWake(("/healthz",))
    assert read_no_wake(b'{"spec": {}}') == NoWake()
