"""Bodies: texts of others mention nobody and link to nothing, and what is long is cut with a link."""

from __future__ import annotations

import json
import re

import pytest

from reconciler.model.finding import Finding, Severity
from reconciler.notifications.bodies import (
    LONGEST_LINE,
    LONGEST_TITLE,
    MOST_CHARACTERS,
    describe_message,
    disarm_text,
    escape_markdown,
    format_markdown,
    format_text,
)
from reconciler.notifications.channels.webhook import encode_event
from reconciler.notifications.message import EventType, Message, MessageResource, State

LINK = "https://reconciler.example.com/ui/resource/source/main"
HOSTILE = (
    "@channel <!here> <@U123> @everyone",
    "[click](https://evil.example/x) <a href='https://evil.example'>x</a> https://evil.example/?a=b",
    "www.evil.example evil.example/path #12 !34 mailto:a@evil.example javascript:alert(1)",
    "**bold** `code` ~~gone~~ | a | b |\n# Title\n```\n- list",
    "\x1b[31mred\x1b[0m \u202ereversed \u200bhidden\x00",
    "&lt;script&gt; &#64;channel \\[x\\](y)",
)


def make_message(text: str, **fields: object) -> Message:
    values: dict[str, object] = {
        "title": text,
        "lines": (text,),
        "resources": (MessageResource("workload/shop/api", "update", "local", "EngineFailed", text),),
        "findings": (Finding(text[:40], 1, 2, "rule", Severity.ERROR, text),),
        "link": LINK,
    }
    return Message(id="x", sequence=1, event=EventType.RUN, state=State.FAILURE, at=0.0, **(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("write", [format_text, format_markdown])
def test_texts_of_others_have_no_mention_and_no_link(write: object, text: str) -> None:
    assert callable(write)
    body = write(make_message(text))
    others = body.replace(LINK, "")
    assert re.search(r"@\w", others) is None
    assert re.search(r"(?i)\bhttps?://\w", others) is None
    assert re.search(r"(?i)\bwww\.\w|evil\.example", others) is None
    assert re.search(r"[\x00-\x09\x0b-\x1f\u202e\u200b]", others) is None
    assert body.endswith(LINK if write is format_text else f"]({LINK})")


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_no_markup_of_others(text: str) -> None:
    for match in re.finditer(r"[`*_\[\]<>#|~]", escape_markdown(text)):
        before = escape_markdown(text)[: match.start()]
        assert (len(before) - len(before.rstrip("\\"))) % 2 == 1, match


def test_what_people_copy_stays_as_it_is() -> None:
    for text in ("reconciler approve 9c0d1e2f3a4b", "shop/api.yaml:12:7: unknown field", "workload/shop/api", "v1.4.2"):
        assert disarm_text(text) == text


@pytest.mark.parametrize("write", [format_text, format_markdown])
def test_what_is_long_is_cut_with_the_link(write: object) -> None:
    assert callable(write)
    findings = tuple(Finding("a" * 500, 1, 2, "rule", Severity.ERROR, "x" * 100_000) for _ in range(20))
    body = write(make_message("n" * 500, findings=findings, lines=("y" * 2_000_000,)))
    assert len(body) <= MOST_CHARACTERS
    assert LINK in body
    assert "…" in body


def test_a_webhook_gets_bounded_texts() -> None:
    findings = tuple(Finding("a" * 500, 1, 2, "rule", Severity.ERROR, "x" * 100_000) for _ in range(20))
    message = make_message("n" * 500, findings=findings, lines=("y" * 2_000_000,))
    assert len(encode_event(message, "msg_1", "/reconciler/acme")) < 60_000
    values = describe_message(message)
    assert len(values["title"]) == LONGEST_TITLE
    assert {len(finding["message"]) for finding in values["findings"]} == {LONGEST_LINE}
    assert json.dumps(values).isascii() or "…" in json.dumps(values, ensure_ascii=False)


def test_a_repetition_is_marked() -> None:
    assert "may be a repetition" in format_text(make_message("x", may_repeat=True))
    assert "may be a repetition" not in format_text(make_message("x"))
