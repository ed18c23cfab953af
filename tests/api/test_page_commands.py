"""Each view names a command that gives the same answer: for each filter, search, level and range of times."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlencode

import pytest

from reconciler.model.record import Health
from reconciler.queries.browsing import STATES
from reconciler.records.store import FILE, Records
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.api.test_page import add_message
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.api import READER_PEER, ApiSandbox, api_sandbox
from tests.support.sandbox import workload

OTHER = "kind: gvc\nname: zoo\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
QUOTED = "it's --a $(thing)"
"""A text that a shell would not take as it is."""
RESOURCES: tuple[dict[str, str], ...] = (
    {},
    {"kind": "workload"},
    {"kind": "gvc"},
    {"gvc": "shop"},
    {"gvc": "zoo", "kind": "workload"},
    *({"state": state} for state in STATES),
    {"state": "unwell", "kind": "workload"},
    {"state": "unwell", "gvc": "zoo"},
    {"state": "recorded", "gvc": "shop", "text": "p"},
    {"tag": "team=web"},
    {"tag": "!team", "gvc": "shop"},
    {"tag": "team in (web,ops)", "state": "recorded"},
    {"text": "shop"},
    {"text": "workload/zoo"},
    {"text": "Shop"},
    {"text": QUOTED},
    {"text": "a", "kind": "workload", "state": "unwell"},
    {"limit": "2"},
    {"limit": "1", "state": "unwell"},
)
LOGS: tuple[dict[str, str], ...] = (
    {"query": "workload/shop/web"},
    {"query": '{gvc="shop"} |= "is"'},
    {"query": "gvc/zoo"},
    {"query": "workload/shop/web", "lines": "3"},
    *({"query": "workload/shop/web", "level": level} for level in ("error", "warning", "info", "debug")),
    {"query": '{gvc="shop"}', "level": "error", "lines": "5"},
    {"query": "workload/shop/web", "replica": "web-2"},
    {"query": "workload/shop/web", "since": "SECOND"},
    {"query": "workload/shop/web", "until": "SECOND"},
    {"query": "workload/shop/web", "since": "SECOND", "until": "THIRD", "level": "error"},
)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no "report"\n'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with resources in each state, and with lines of each level."""
    lion = {name: workload(name).replace("gvc: shop", "gvc: zoo") for name in ("lion", "yak", "gnu", "ape")}
    files = FILES | {"zoo/gvc.yaml": OTHER, **{f"zoo/{name}.yaml": text for name, text in lion.items()}}
    path = tmp_path_factory.mktemp("commands")
    with api_sandbox(path, files) as sandbox:
        add_message(sandbox)
        states = {"shop/web": Health.UNHEALTHY, "zoo/lion": Health.LOADING, "zoo/yak": Health.HEALTHY}
        states |= {"zoo/gnu": Health.DELETING, "zoo/ape": Health.UNKNOWN}
        with closing(Records.open(sandbox.state / FILE)) as records:
            for name, health in states.items():
                records.applied.update_seen(f"workload/{name}", "here", health, b"{}")
        write_lines(LogHarness(path))
        yield sandbox


def write_lines(harness: LogHarness) -> None:
    """Lines of two replicas and two workloads, at three moments."""
    harness.taken(f"INFO it is there\nDEBUG it waits\n{TRACE}", place("web"))
    harness.wait(60)
    harness.taken("level=warning msg=this\nplain\n", place("web", "web-2"))
    harness.taken("ERROR of another\n", place("lion", gvc="zoo"))
    harness.wait(60)
    harness.taken(f"{TRACE}INFO the end\n", place("web", "web-2"))


@pytest.fixture(scope="module")
def admin(page: ApiSandbox) -> Browser:
    """The browser of a superuser."""
    return Browser(page).log_in()


def find_command(text: str) -> list[str]:
    """The words of the last command that a page shows, after `reconciler`."""
    written = re.findall(r"<code>(reconciler [^<]*)</code><button", text)[-1]
    return shlex.split(html.unescape(written))[1:]


def find_links(text: str) -> list[str]:
    """What the rows of a page are called."""
    rows = text.partition("<tbody>")[2].partition("</tbody>")[0]
    return [html.unescape(name) for name in re.findall(r'<th scope="row".*?<a (?!class="fold")[^>]*>([^<]*)</a>', rows)]


def run_command(sandbox: ApiSandbox, words: list[str]) -> str:
    """What the command prints."""
    done = sandbox.run(*words)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.mark.parametrize("query", RESOURCES, ids=str)
def test_the_command_lists_the_same_resources(page: ApiSandbox, admin: Browser, query: dict[str, str]) -> None:
    shown = admin.get(f"/ui/resources?{urlencode(query)}")
    command = find_command(shown)
    assert find_links(shown) == run_command(page, [*command, "-o", "name"]).split()
    printed = run_command(page, command)
    assert all(name in printed for name in find_links(shown))


def test_each_state_has_a_resource(admin: Browser) -> None:
    assert all(find_links(admin.get(f"/ui/resources?state={state}")) for state in STATES)


@pytest.mark.parametrize("query", RESOURCES, ids=str)
def test_readers_get_the_same_answer_from_the_api(page: ApiSandbox, admin: Browser, query: dict[str, str]) -> None:
    asked = {"selector" if name == "tag" else name: value for name, value in query.items()}
    items = page.client(READER_PEER).get(f"/org/acme/-status?{urlencode(asked)}")["items"]
    shown = find_links(admin.get(f"/ui/resources?{urlencode(query)}"))
    keys = ["/".join(filter(None, (item["kind"], item.get("gvc", ""), item["name"]))) for item in items]
    assert keys == shown


@pytest.mark.parametrize("query", LOGS, ids=str)
def test_the_command_prints_the_same_lines(page: ApiSandbox, admin: Browser, query: dict[str, str]) -> None:
    moments = sorted(set(re.findall(r'<time datetime="([^"]*)"', admin.get("/ui/logs?query=workload/shop/web"))))
    assert len(moments) == 3
    named = {"SECOND": moments[1], "THIRD": moments[2]}
    shown = admin.get(f"/ui/logs?{urlencode({name: named.get(value, value) for name, value in query.items()})}")
    printed = run_command(page, [*find_command(shown), "-o", "json"]).splitlines()
    assert find_lines(shown) == [json.loads(line)["line"] for line in printed]
    assert find_lines(shown)


def find_lines(text: str) -> list[str]:
    """The lines that a page of logs shows."""
    return [html.unescape(line) for line in re.findall(r'class="line">([^<]*)<', text)]


@pytest.mark.parametrize("path", ["/ui/runs", "/ui/runs?source=main", "/ui/runs?last=1", "/ui/runs?source=main&last=1"])
def test_the_command_lists_the_same_runs(page: ApiSandbox, admin: Browser, path: str) -> None:
    shown = admin.get(path)
    assert find_links(shown) == re.findall(r'"run": ?(\d+)', run_command(page, [*find_command(shown), "-o", "json"]))


@pytest.mark.parametrize("path", ["/ui/notifications", "/ui/notifications?last=1"])
def test_the_command_lists_the_same_messages(page: ApiSandbox, admin: Browser, path: str) -> None:
    shown = admin.get(path)
    assert find_links(shown) == re.findall(r'"id": ?(\d+)', run_command(page, [*find_command(shown), "-o", "json"]))


def test_a_state_that_does_not_exist_is_named_with_those_that_do(page: ApiSandbox, admin: Browser) -> None:
    for state, hint in (("unwel", "did you mean unwell?"), ("x", "the states are unwell, loading, healthy")):
        done = page.run("get", "--state", state)
        assert (done.returncode, hint in done.stderr) == (2, True), done.stderr
        assert hint in admin.get(f"/ui/resources?state={state}", 400)
        answer = page.client().request("GET", f"/org/acme/-status?state={state}")
        assert (answer.status_code, hint in answer.text) == (400, True), answer.text
    refused = page.run("get", "source", "--state", "unwell")
    assert (refused.returncode, "leave them out" in refused.stderr) == (2, True), refused.stderr


def test_a_name_and_a_state_are_searched_together(page: ApiSandbox) -> None:
    assert run_command(page, ["get", "workload", "web", "--state", "Unhealthy", "-o", "name"]).split() == [
        "workload/shop/web"
    ]
    done = page.run("get", "workload", "api", "--state", "unhealthy")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", "nothing matches")
