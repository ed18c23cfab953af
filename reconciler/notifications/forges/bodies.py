"""What forges show of a message, in plain text and in Markdown. Texts of others are always code in Markdown.

A code span has no mentions, references, links, images and HTML on any forge; ``code_span`` shows characters that hide
or reorder text, and cannot be broken out of. No line begins with a text of others, so that GitLab finds no command
(``/merge``) in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reconciler.model.finding import Finding
from reconciler.notifications.message import Message, MessageResource, State
from reconciler.printable import code_span, escape_text

MOST_RESOURCES = 30
"""The most resources in a summary; the rest are only counted."""
_MOST_TEXT = 500
_OPEN = re.compile(r"<details( open)?>")
_FOLDED = re.compile(r"<details(?: open)?><summary>([A-Za-z ]+)</summary>")
_MARKS = {State.SUCCESS: "✅", State.FAILURE: "❌", State.SUPERSEDED: "⏭️", State.PENDING: "⏳", State.RUNNING: "▶️"}


def format_status_line(message: Message, most: int) -> str:
    """One line of plain text with at most ``most`` characters: the counts, and the first reason of a failure."""
    counts = ", ".join(f"{number} {escape_text(word)}" for word, number in message.counts.items() if number)
    reason = _find_first_reason(message)
    parts = [counts or escape_text(message.title), reason]
    return cut_line(": ".join(part for part in parts if part), most)


def cut_line(text: str, most: int) -> str:
    """``text`` with at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def build_summary(message: Message, most: int, *, html: bool = True) -> str:
    """``message`` as Markdown of at most ``most`` characters."""
    return cut_markdown("\n".join(_render_message(message)), most, message.link, html=html)


def build_outcome(message: Message) -> str:
    """A heading with the state of ``message``, and its Markdown."""
    return "\n".join(_render_message(message))


def quote_text(text: str, most: int = _MOST_TEXT) -> str:
    """A text of others as code, of a bounded length."""
    return code_span(cut_line(text, most))


def cut_markdown(text: str, most: int, link: str = "", *, html: bool = True) -> str:
    """``text`` with at most ``most`` characters, cut between two lines, with a ``link`` to the rest.

    Nothing stays open at the cut: code is within one line, and folded parts are closed. Without ``html``, folded parts
    become headings.
    """
    if not html:
        text = _remove_html(text)
    if len(text) <= most:
        return text
    rest = f"\n\n… cut: the rest is at {link}\n" if link else "\n\n… cut: `reconciler plan` shows the rest.\n"
    room = most - len(rest) - len("\n</details>") * 4
    lines: list[str] = []
    opened = 0
    for line in text.split("\n"):
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
        opened += bool(_OPEN.match(line)) - (line == "</details>")
    return "\n".join(lines) + "\n\n</details>" * max(opened, 0) + rest


def make_marker(name: str, *, html: bool) -> str:
    """The line by which a comment is found again, which no forge shows. ``name`` has letters, digits, -, _, . and :."""
    return f"<!-- {name} -->" if html else f"[//]: # ({name})"


def _remove_html(text: str) -> str:
    """Markdown without the HTML that our renderers write."""
    lines: list[str] = []
    for line in text.split("\n"):
        if folded := _FOLDED.fullmatch(line):
            lines += [f"**{folded[1]}**"]
        elif line != "</details>":
            lines.append(line.replace("<sub>", "").replace("</sub>", "").replace("<br>", " "))
    return "\n".join(lines)


def _render_message(message: Message) -> Iterator[str]:
    mark = _MARKS.get(message.state, "")
    yield f"**{mark} {quote_text(message.title)}**" if mark else f"**{quote_text(message.title)}**"
    if message.revision:
        yield f"\nRevision {quote_text(message.revision)}."
    for line in message.lines:
        yield f"\n- {quote_text(line)}"
    if message.counts:
        yield "\n- " + ", ".join(f"{number} {escape_text(word)}" for word, number in message.counts.items())
    yield from _render_resources(message.resources[:MOST_RESOURCES])
    yield from render_findings(message.findings)
    more = message.left_out + max(len(message.resources) - MOST_RESOURCES, 0)
    if more:
        yield f"\n… and {more} more."
    if message.link:
        yield f"\n[Show it]({message.link})"


def _render_resources(resources: Sequence[MessageResource]) -> Iterator[str]:
    if not resources:
        return
    yield "\n| resource | action | location | reason |"
    yield "|---|---|---|---|"
    for resource in resources:
        why = f"{resource.reason}: {resource.message}" if resource.message else resource.reason
        cells = (resource.key, resource.action, resource.location, why)
        yield f"| {' | '.join(quote_text(cell) for cell in cells)} |"


def render_findings(findings: Sequence[Finding]) -> Iterator[str]:
    """A table of ``findings`` with file and line."""
    if not findings:
        return
    yield "\n| where | severity | what | what to do |"
    yield "|---|---|---|---|"
    for finding in findings:
        place = f"{finding.path}:{finding.line}" if finding.line else finding.path
        row = (quote_text(place), str(finding.severity), quote_text(finding.message), quote_text(finding.suggestion))
        yield f"| {' | '.join(row)} |"


def _find_first_reason(message: Message) -> str:
    """Why the first resource failed, or what the first finding says; "" for neither."""
    if message.state is not State.FAILURE:
        return ""
    if message.findings:
        finding = message.findings[0]
        place = f"{finding.path}:{finding.line}" if finding.line else finding.path
        return f"{escape_text(place)}: {escape_text(finding.message)}"
    failed = [resource for resource in message.resources if resource.message or resource.reason]
    if not failed:
        return ""
    why = " ".join(part for part in (failed[0].reason, failed[0].message) if part)
    return f"{escape_text(failed[0].key)}: {escape_text(why)}"
