"""The table of events in the documentation is that of the code, and of the settings."""

from __future__ import annotations

import re

from docs.generate.notifications import WORDS, make_examples, page
from reconciler.documents.schema.loader import load_schema
from reconciler.notifications.bodies import format_text
from reconciler.notifications.message import EventType, State
from reconciler.notifications.troubles import TRANSITIONS
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
