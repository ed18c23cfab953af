"""What people of a forge read: texts of others are code, nothing breaks out of it, and nothing is too long."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.notifications.forges.bodies import build_summary, cut_markdown, format_status_line
from reconciler.notifications.forges.channel import ForgeChannel
from reconciler.notifications.message import MessageResource, State
from tests.notifications.forges.setup import KINDS, make_finding, make_message, make_set, make_settings
from tests.notifications.forges.stub_forge import COMMIT, run_stub

HOSTILE = [
    "@channel @acme/owners please look",
    "![x](https://evil.example/track.png)",
    "[click](https://evil.example)",
    "https://evil.example/login",
    "```\n/merge\n/approve\n```",
    "`` ``` ` four ````",
    "<img src=x onerror=alert(1)>",
    "</details></table><script>alert(1)</script>",
    "#1 fixes #2 !3 GH-4",
    "| a | b |\n|---|---|",
    "\u202egnp.exe\u2066 \x1b[31m \x00 \u200b",
    "---\n# A heading\n> quote\n- [ ] task",
    "-->\n<b>x</b>\n<!--",
    "$$\\href{https://evil.example}{x}$$",
    ":boom: *a* __b__ ~~c~~",
    "a" * 500,
]


def _remove_code(markdown: str) -> str:
    """``markdown`` without its code spans, by the rule of CommonMark: as many backticks end as began."""
    return re.sub(r"(?<!`)(`+)(?!`)(.*?[^`])\1(?!`)", "", markdown, flags=re.DOTALL)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_others_are_code_and_nothing_else(text: str) -> None:
    resource = MessageResource(f"workload/shop/{text}", text, text, text, text)
    message = make_message(
        State.FAILURE,
        title=text,
        revision=text,
        lines=(text,),
        resources=(resource,),
        findings=(make_finding(text, path=text),),
    )
    body = build_summary(message, 60_000)
    rest = _remove_code(body)
    assert not re.search(r"@|!\[|evil|<(?!br)|#\d|\$|:boom:|script|\x1b|[\u202e\u2066\u200b\x00]", rest)
    assert not re.search(r"[\u202e\u2066\u200b\x00\x1b]", body)
    # Only our own words begin a line, so that no forge finds a command.
    assert all(re.match(r"\*\*|Revision |- |\||… |\[Show it\]|$", line) for line in body.split("\n"))
    assert "[Show it](https://reconciler.example.com/page/runs/7)" in body


@pytest.mark.parametrize("text", HOSTILE)
def test_a_status_line_has_one_line_and_no_control_characters(text: str) -> None:
    line = format_status_line(make_message(State.FAILURE, counts={}, title=text), 140)
    assert len(line) <= 140
    assert not re.search(r"[\n\r\x00\x1b\u202e\u2066\u200b]", line)


@pytest.mark.parametrize("kind", KINDS)
async def test_two_megabytes_are_cut_with_a_link(kind: str, tmp_path: Path) -> None:
    text = "x" * 2_000_000
    name = "n" * 500
    findings = tuple(make_finding(text, path=f"{name}/{number}.yaml") for number in range(300))
    resources = tuple(MessageResource(f"workload/{name}/{number}", "", "", "Failed", text) for number in range(300))
    message = make_message(State.FAILURE, title=text, findings=findings, resources=resources, lines=(text,) * 300)
    assert len(build_summary(message, 60_000)) <= 60_000
    assert build_summary(message, 60_000).endswith("the rest is at https://reconciler.example.com/page/runs/7\n")
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path)))
        await channel.send(message, "")
        await channel.close()
        [status] = stub.statuses[COMMIT]
        assert len(status["description"]) <= 255
        assert max(len(request.raw) for request in stub.requests) < 200_000
        assert not stub.faults


async def test_a_check_run_takes_two_megabytes_too(tmp_path: Path) -> None:
    findings = tuple(make_finding("y" * 2_000_000) for _ in range(60))
    with run_stub("github") as stub:
        channel = ForgeChannel(make_set(make_settings("github", stub.url, tmp_path, app=True)))
        await channel.send(make_message(State.FAILURE, findings=findings), "")
        await channel.close()
        assert max(len(request.raw) for request in stub.requests) < 400_000
        [run] = stub.check_runs.values()
        assert len(run["output"]["summary"]) <= 65_535
        assert all(len(annotation["message"]) <= 64_000 for annotation in run["output"]["annotations"])
        assert not stub.faults


def test_what_is_folded_is_closed_where_a_text_is_cut() -> None:
    text = "\n".join(
        ["### Plan", "<details><summary>Changed fields</summary>", *["a line of words"] * 100, "</details>"]
    )
    cut = cut_markdown(text, 500)
    assert len(cut) <= 500
    assert cut.count("<details>") == cut.count("</details>") == 1
    assert cut.rstrip().endswith("shows the rest.")


def test_a_forge_without_html_gets_none() -> None:
    folded = "<details><summary>Changed fields</summary>\n\n| `a` | `b`<br>`c` |\n</details>"
    text = f"### Plan\n\n{folded}\n<sub>digest</sub>\n"
    assert cut_markdown(text, 500, html=False) == "### Plan\n\n**Changed fields**\n\n| `a` | `b` `c` |\ndigest\n"
