"""The table of events in the documentation is that of the code, and of the settings."""

from __future__ import annotations

import re

from docs.generate.notifications import WORDS, make_examples, page
from reconciler.documents.schema.loader import load_schema
from reconciler.notifications.bodies import format_text
from reconciler.notifications.message import EventType, State
from reconciler.notifications.outcomes import RunNotice, make_approval_message, make_run_message
from reconciler.notifications.severity import Severity, grade_reason
from reconciler.notifications.troubles import TRANSITIONS
from reconciler.settings import notifications
from reconciler.settings.notifications import FAILURES_AND_RECOVERIES, USUAL_EVENTS

RULE = load_schema("settings")["properties"]["notifications"]["properties"]["rules"]["items"]["properties"]


def test_the_events_of_the_page_are_those_of_the_code_and_of_the_settings() -> None:
    events = [str(event) for event in EventType if event not in (EventType.TEST, EventType.DIGEST)]
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:yes|no) \|$", page(), re.MULTILINE) == events
    assert RULE["events"]["items"]["enum"] == events == [str(event) for event in WORDS]
    assert RULE["events"]["default"] == list(USUAL_EVENTS)
    assert RULE["states"]["default"] == list(FAILURES_AND_RECOVERIES)
    assert {*RULE["states"]["items"]["enum"]} == {str(state) for state in State if state is not State.NONE} | {
        "recovery"
    }


def test_each_event_has_an_example() -> None:
    examples = list(make_examples())
    assert {message.event for message in examples} == {*EventType} - {EventType.TEST, EventType.DIGEST}
    assert all(format_text(message) in page() for message in examples)


def test_each_reason_is_in_the_table_of_the_page() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| `\w+` \|", page(), re.MULTILINE))
    assert rows == {*map(str, TRANSITIONS), "SourceStale"}


def test_the_severities_of_the_page_are_those_of_the_messages_and_of_the_settings() -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| ([^`|]*(?:`\w+`[^`|]*)*) \|$", page().partition("## Severity")[2], re.MULTILINE)
    )
    assert RULE["severity"]["enum"] == list(Severity)
    assert RULE["severity"]["default"] == notifications.NotificationRuleSettings("", ()).severity
    begins = {"SourceStale", *(str(reason) for reason, transition in TRANSITIONS.items() if not transition.ends)}
    assert {name for text in rows.values() for name in re.findall(r"`(\w+)`", text)} == begins
    for severity in Severity:
        assert all(grade_reason(name) is severity for name in re.findall(r"`(\w+)`", rows[severity]))
    words = {
        "fail": make_run_message(RunNotice("main", "", "failed"), 0.0, recovers=False),
        "refused": make_run_message(RunNotice("main", "", "refused"), 0.0, recovers=False),
        "approvals": make_approval_message(RunNotice("main", "", "waiting", waiting=1), 0.0),
        "being applied": make_run_message(RunNotice("main", "", "running"), 0.0, recovers=False),
        "were applied": make_run_message(RunNotice("main", "", "applied"), 0.0, recovers=False),
    }
    assert [word for word, message in words.items() if word not in rows[message.severity]] == []
