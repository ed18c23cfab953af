"""The table of views and actions is complete: what the page gets cannot be left out of the tests in a browser."""

from __future__ import annotations

import re
from importlib.resources import files

from reconciler.api.page.table import PAGES
from reconciler.engines.command_types import COMMANDS
from tests.page.table import ACTIONS, APPROVALS, CALLERS, OTHERS, RETRY, SESSION, STREAMS, VIEWS

TEMPLATES = files("reconciler.api.page").joinpath("templates")
FORM = re.compile(r'<form[^>]* method="post"[^>]* action="(.+?)">')


def test_each_view_is_in_the_table() -> None:
    shown = {page.path for page in PAGES if page.method == "GET" and page.media == "text/html"}
    patterns = {path: re.sub(r"\{\w+\}", "[^/?]+", path) for path in shown}
    tried = {
        path for path, regex in patterns.items() if any(re.match(f"{regex}($|\\?)", v.path) for v in VIEWS.values())
    }
    assert shown - tried == OTHERS
    assert {page.path for page in PAGES if page.method == "GET"} - shown == STREAMS


def test_each_form_is_an_action_of_the_table() -> None:
    written = {
        (template.name.removesuffix(".html"), find_end(address))
        for template in TEMPLATES.iterdir()
        for address in FORM.findall(template.read_text())
    }
    assert len(written) > 15
    tried = {(action.template, find_end(action.sends)) for action in (*ACTIONS, *APPROVALS, RETRY)}
    assert written == tried | {(template, find_end(path)) for template, path in SESSION}


def find_end(address: str) -> str:
    """The action at the end of an address, as a template writes it or as it is sent; else its first two words."""
    if action := re.search(r"-[a-z]+(?='\) \}\}$|$)", address):
        return action[0]
    return "-command" if address == "{{ to }}" else "/".join(address.split("/")[:3])


def test_each_command_is_requested() -> None:
    assert {action.command for action in ACTIONS} - {""} == {name for forms in COMMANDS.values() for name in forms}


def test_each_post_of_the_page_itself_is_an_action() -> None:
    posted = {"/".join(page.path.split("/")[:3]) for page in PAGES if page.method == "POST"}
    sent = [action.sends for action in ACTIONS] + [path for _, path in SESSION]
    assert posted <= {"/".join(path.split("/")[:3]) for path in sent}


def test_each_action_is_done_by_somebody_and_refused_to_somebody() -> None:
    for action in (*ACTIONS, *APPROVALS, RETRY):
        assert action.callers, action
        assert action.callers < set(CALLERS), action
