"""The rich forms of Slack and Teams: what they look like, what texts of others cannot do, and what is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from reconciler.model import finding
from reconciler.notifications.channels.chat import (
    MOST_BYTES,
    MOST_HEADER,
    MOST_SECTION,
    make_slack_body,
    make_teams_body,
)
from reconciler.notifications.message import MessageResource, State
from reconciler.notifications.severity import Severity
from tests.notifications.test_bodies import HOSTILE, LINK, make_message

MESSAGE = msgspec.structs.replace(
    make_message("no room"),
    title="main: aaaaaaaaaaaa failed",
    lines=("Use 1.4 of the API, Ada",),
    findings=(),
    commit="a" * 40,
)


def list_texts(value: Any, name: str = "text") -> Iterator[str]:
    """Every text in a body that people see."""
    for member, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, (dict, list)):
            yield from list_texts(inner, name)
        elif member in (name, "summary"):
            yield inner


def test_slack_gets_a_header_sections_and_a_link() -> None:
    body = json.loads(make_slack_body(MESSAGE))
    lines = "• Use 1.4 of the API, Ada\n• workload/shop/api at local: EngineFailed: no room\n• Commit aaaaaaaaaaaa"
    assert body == {
        "text": "❌ main: aaaaaaaaaaaa failed",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "❌ main: aaaaaaaaaaaa failed", "emoji": False}},
            {"type": "section", "text": {"type": "plain_text", "text": lines, "emoji": False}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": f"<{LINK}|Details>"}]},
        ],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def test_teams_gets_an_adaptive_card() -> None:
    body = json.loads(make_teams_body(MESSAGE))
    [attachment] = body["attachments"]
    assert (body["type"], body["summary"]) == ("message", "main: aaaaaaaaaaaa failed")
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    title = {"type": "TextRun", "text": "main: aaaaaaaaaaaa failed", "size": "Large", "weight": "Bolder"}
    assert card["body"][0] == {"type": "RichTextBlock", "inlines": [{**title, "color": "Attention"}]}
    assert [block["inlines"][0]["text"] for block in card["body"][1:]] == [
        "Use 1.4 of the API, Ada",
        "workload/shop/api at local: EngineFailed: no room",
        "Commit aaaaaaaaaaaa",
    ]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Details", "url": LINK}]


@pytest.mark.parametrize(
    ("state", "severity", "symbol", "colour"),
    [
        (State.FAILURE, Severity.ERROR, "❌", "Attention"),
        (State.SUCCESS, Severity.ERROR, "✅", "Good"),
        (State.RUNNING, Severity.INFO, "⏳", "Accent"),
        (State.NONE, Severity.WARNING, "⚠️", "Warning"),
        (State.SUPERSEDED, Severity.INFO, "ℹ️", "Default"),
    ],
)
def test_the_state_is_seen_at_once(state: State, severity: Severity, symbol: str, colour: str) -> None:
    message = msgspec.structs.replace(MESSAGE, state=state, severity=severity)
    assert json.loads(make_slack_body(message))["text"].startswith(f"{symbol} ")
    card = json.loads(make_teams_body(message))["attachments"][0]["content"]
    assert card["body"][0]["inlines"][0]["color"] == colour


@pytest.mark.parametrize("text", [*HOSTILE, "<!channel|x> <#C1> <https://evil.example|pay> &lt;!here&gt; :x: ```"])
def test_a_chat_reads_no_markup_in_texts_of_others(text: str) -> None:
    message = make_message(text, title=f"{text} {LINK}")
    slack, teams = json.loads(make_slack_body(message)), json.loads(make_teams_body(message))
    assert [each["text"] for each in slack["blocks"][-1]["elements"]] == [f"<{LINK}|Details>"]
    # Slack reads markup only in the text beside the blocks, where its three characters are escaped.
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", slack["text"])
    assert {block["text"]["type"] for block in slack["blocks"][:-1]} == {"plain_text"}
    plain = [block["text"]["text"] for block in slack["blocks"][:-1]]
    card = teams["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}, "a TextBlock reads Markdown"
    for shown in (slack["text"], *plain, *list_texts(teams)):
        assert re.search(r"@\w|<[!@#\w]", shown) is None
        assert re.search(r"(?i)\bhttps?://\w|\bwww\.\w|evil\.example", shown) is None
        assert re.search(r"[\x00-\x09\x0b-\x1f\u202e\u200b]", shown) is None


def test_a_link_of_ours_cannot_end_early() -> None:
    message = msgspec.structs.replace(MESSAGE, link=f"{LINK}?a=1&b=<x>|y")
    element = json.loads(make_slack_body(message))["blocks"][-1]["elements"][0]
    assert element["text"] == f"<{LINK}?a=1&amp;b=&lt;x&gt;%7Cy|Details>"


@pytest.mark.parametrize("character", ["x", "&", "<", "é", "漢", "😀", '"', "\u0001"])
def test_what_is_long_is_cut_to_what_a_chat_takes(character: str) -> None:
    text = character * 2_000_000
    many = tuple(MessageResource(f"workload/shop/{number}", "update", "local", "Failed", text) for number in range(20))
    findings = tuple(finding.Finding(text[:500], 1, 2, "rule", finding.Severity.ERROR, text) for _ in range(20))
    message = make_message(text, lines=(text,) * 20, resources=many, findings=findings)
    slack = json.loads(make_slack_body(message))
    assert len(slack["blocks"]) <= 50
    assert len(slack["blocks"][0]["text"]["text"]) <= MOST_HEADER
    sections = [block["text"]["text"] for block in slack["blocks"] if block["type"] == "section"]
    assert sections
    assert all(0 < len(section) <= MOST_SECTION for section in sections)
    assert sections[-1].endswith("…")
    assert slack["blocks"][-1]["elements"][0]["text"] == f"<{LINK}|Details>"
    teams = make_teams_body(message)
    assert len(teams) <= MOST_BYTES < 28 * 1024
    assert len(teams.decode().encode("utf-16-le")) < 28 * 1024
    card = json.loads(teams)["attachments"][0]["content"]
    assert re.fullmatch(r"… and \d+ more lines", card["body"][-1]["inlines"][0]["text"])
    assert card["actions"][0]["url"] == LINK


def test_a_message_without_a_link_and_without_lines_is_a_title() -> None:
    message = make_message("", title="A test", lines=(), resources=(), findings=(), link="")
    assert [block["type"] for block in json.loads(make_slack_body(message))["blocks"]] == ["header"]
    card = json.loads(make_teams_body(message))["attachments"][0]["content"]
    assert (len(card["body"]), "actions" in card) == (1, False)
