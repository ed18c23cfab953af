"""Messages as text, as Markdown and as JSON values. Texts of others cannot mention anybody, and link to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.model.revision import shorten_id
from reconciler.notifications.message import Message, MessageResource, State
from reconciler.notifications.severity import Severity
from reconciler.printable import escape_text
from reconciler.render.findings import format_place

MOST_CHARACTERS = 3_500
"""The longest text; most chats take 4,000 characters."""
LONGEST_LINE = 500
LONGEST_TITLE = 200

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$^=\"'&-])")
"""Characters that some dialect of Markdown, or HTML in it, gives a meaning."""
_MENTION = re.compile(r"[@＠]")
_LINK = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\b(mailto|tel|javascript):|\bwww\.")
_HOST = re.compile(r"(?<=\w)\.(?=[A-Za-z]{2,}\b)(?!ya?ml\b|json\b)")
"""The last point of a host name; names of manifests stay as they are, for people who copy them."""
_JOINER = "\u2060"
"""A word joiner: it is not shown, and ends what a receiver takes for a mention or a link."""


def shorten_text(text: str, length: int) -> str:
    """``text`` on one line, safe to show, in at most ``length`` characters."""
    # Escaping makes nothing shorter, so that the beginning is enough.
    line = escape_text(text[: length + 1])
    return line if len(line) <= length else f"{line[: length - 1]}…"


def disarm_text(text: str) -> str:
    """``text`` that mentions nobody and is no link, wherever it is shown: ``@all``, ``https://…``, ``www.…``."""
    text = _MENTION.sub(lambda match: f"{match[0]}{_JOINER}", text)
    text = _LINK.sub(lambda match: f"{match[0][:-1]}{_JOINER}{match[0][-1]}", text)
    # A plain name such as evil.example becomes a link in some chats, and #1 or !1 a reference in forges.
    text = _HOST.sub(f".{_JOINER}", text)
    return re.sub(r"([#!])(?=\d)", rf"\1{_JOINER}", text)


def escape_markdown(text: str) -> str:
    """``text`` that any dialect of Markdown shows as it is, and that mentions nobody."""
    return _MARKUP.sub(r"\\\1", disarm_text(text))


def format_text(message: Message, limit: int = MOST_CHARACTERS) -> str:
    """The message as lines of plain text, cut with a link to the whole."""
    head = disarm_text(shorten_text(message.title, LONGEST_TITLE))
    lines = [disarm_text(line) for line in list_lines(message)]
    return _join_lines(head, lines, message.link, limit)


def format_markdown(message: Message, limit: int = MOST_CHARACTERS) -> str:
    """The message as Markdown, cut with a link to the whole."""
    head = f"**{escape_markdown(shorten_text(message.title, LONGEST_TITLE))}**"
    lines = [escape_markdown(line) for line in list_lines(message)]
    link = f"[Details]({message.link})" if message.link else ""
    return _join_lines(head, [f"- {line}" for line in lines], link, limit, gap="\n\n")


def describe_message(message: Message) -> dict[str, Any]:
    """The message as JSON values, each text in bounds; programs decide themselves how they show it."""
    return {
        "id": message.id,
        "sequence": message.sequence,
        "event": str(message.event),
        "state": str(message.state),
        "severity": str(message.severity),
        "title": shorten_text(message.title, LONGEST_TITLE),
        "text": format_text(message),
        "source": message.source,
        "revision": message.revision,
        "commit": message.commit,
        "lines": [shorten_text(line, LONGEST_LINE) for line in message.lines],
        "resources": [_describe_resource(resource) for resource in message.resources],
        "findings": [
            {
                "path": shorten_text(finding.path, LONGEST_LINE),
                "line": finding.line,
                "column": finding.column,
                "rule": finding.rule,
                "severity": str(finding.severity),
                "message": shorten_text(finding.message, LONGEST_LINE),
            }
            for finding in message.findings
        ],
        "leftOut": message.left_out,
        "counts": message.counts,
        "digest": message.digest,
        "link": message.link,
        "mayRepeat": message.may_repeat,
    }


def _describe_resource(resource: MessageResource) -> dict[str, str]:
    values = msgspec.structs.asdict(resource)
    return {name: shorten_text(value, LONGEST_LINE) for name, value in values.items()}


def list_lines(message: Message) -> Iterator[str]:
    """What follows the title: lines of plain text, each in bounds, which are not disarmed."""
    if message.may_repeat:
        yield "This may be a repetition: the last try was cut off."
    yield from (shorten_text(line, LONGEST_LINE) for line in message.lines)
    yield from (shorten_text(_format_resource(resource), LONGEST_LINE) for resource in message.resources)
    for finding in message.findings:
        yield shorten_text(f"{format_place(finding)}: {finding.message}", LONGEST_LINE)
    if message.left_out:
        yield f"and {message.left_out} more"
    if message.severity is not Severity.INFO and message.state is not State.SUCCESS:
        yield f"Severity: {message.severity}"
    if message.commit:
        yield f"Commit {shorten_id(message.commit)}"


def _format_resource(resource: MessageResource) -> str:
    at = f" at {resource.location}" if resource.location else ""
    why = ": ".join(part for part in (resource.reason, resource.message) if part)
    return f"{resource.key}{at}: {why}" if why else f"{resource.key}{at}"


def _join_lines(head: str, lines: list[str], link: str, limit: int, gap: str = "\n") -> str:
    ending = f"\n{link}" if link else ""
    text, room = head[:limit], limit - len(head) - len(ending) - len(gap) - 2
    body: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            body.append("…")
            break
        body.append(line)
    return text + (gap + "\n".join(body) if body else "") + ending
