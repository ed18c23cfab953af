"""The page: who sees what, what a browser may do, and what it is protected from."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from reconciler.api.page.assets import VENDORED
from reconciler.api.page.forms import choose_target
from reconciler.api.page.table import PAGES
from reconciler.notifications.message import EventType, Message
from reconciler.records.notifications.deliveries import Delivery
from reconciler.records.store import FILE, Records
from tests.api.browser import HOST, Browser
from tests.api.conftest import FILES
from tests.project.tree import ROOT
from tests.support.api import READER_PEER, ApiSandbox, api_sandbox
from tests.support.sandbox import workload

SCRIPT = "<script>alert(1)</script>"
ACCESS = """
---
kind: serviceaccount
name: viewer
---
kind: serviceaccount
name: operator
---
kind: serviceaccount
name: nobody
---
kind: policy
name: operators-edit
targetKind: workload
target: all
bindings: [{permissions: [edit], principalLinks: [//serviceaccount/operator]}]
---
kind: policy
name: operators-edit-the-org
targetKind: org
target: all
bindings: [{permissions: [edit], principalLinks: [//serviceaccount/operator]}]
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer, //serviceaccount/operator]
"""
HOSTILE = f"""
tags: {{team: "{SCRIPT}", rtl: "a\\u202eb"}}
"""
ADDRESSES = (
    "/",
    "/ui/resources",
    "/ui/resources?text=api",
    "/ui/resources?gvc=shop&kind=workload",
    "/ui/resources?state=unwell",
    "/ui/resources?tag=team%3Dweb",
    "/ui/resource/workload/shop/api",
    "/ui/resource/gvc/shop",
    "/ui/resource/secret/db",
    "/ui/evidence/workload/shop/api",
    "/ui/rollback/workload/shop/api?revision=main",
    "/ui/rollback/gvc/shop?revision=main",
    "/ui/exec/workload/shop/api",
    "/ui/resource/source/main",
    "/ui/runs",
    "/ui/runs?source=main&last=3",
    "/ui/runs/1",
    "/ui/notifications",
    "/ui/notifications/1",
    "/ui/plan/source/main",
    "/ui/diff/source/main",
    "/ui/diff/source/main?from=HEAD&to=main",
    "/ui/logs",
    "/ui/login",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with accounts of each rank, and values that are hostile to a page."""
    access = FILES["access.yaml"] + ACCESS
    more = {"access.yaml": access, "shop/evil.yaml": workload("evil", more=HOSTILE)}
    with api_sandbox(tmp_path_factory.mktemp("page"), FILES | more) as sandbox:
        add_message(sandbox)
        yield sandbox


def add_message(sandbox: ApiSandbox) -> None:
    """Add a message whose texts are hostile to a page."""
    text = f"{SCRIPT} @channel"
    message = Message(
        id="run/main/1", sequence=1, event=EventType.RUN, title=text, at=1.0, lines=(text,), source="main"
    )
    body = msgspec.msgpack.encode(message)
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.deliveries.add(
            Delivery("all", "ops", "run/main/1", "main", "failure", 1, "", body, 1.0, 1.0, answer=text)
        )


@pytest.fixture(scope="module")
def admin(page: ApiSandbox) -> Browser:
    """The browser of a superuser."""
    return Browser(page).log_in()


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_answers_without_scripts_of_its_own_and_other_hosts(admin: Browser, path: str) -> None:
    response = admin.request("GET", path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8"), response.text
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! src=\"/ui/asset/)|<style| style=| on[a-z]+=|https?://", response.text)


def test_each_page_is_among_the_addresses_that_are_tried() -> None:
    shown = {page.path for page in PAGES if page.method == "GET" and page.media == "text/html"}
    patterns = {re.sub(r"\{\w+\}", "[^/?]+", path): path for path in shown}
    tried = {path for pattern, path in patterns.items() if any(re.match(f"{pattern}($|\\?)", one) for one in ADDRESSES)}
    others = {"/ui/login/{code}", "/ui/login/provider", "/ui/plan/digest/{digest}", "/ui/asset/{hash}/{name}"}
    assert shown - tried == others


def test_the_documentation_lists_every_page() -> None:
    rows = re.findall(r"^\| (`/.*?) \|", (ROOT / "docs/page.md").read_text(), re.MULTILINE)
    documented = {re.sub(r"[A-Z]+", "*", path) for row in rows for path in re.findall(r"`(.+?)`", row)}
    parts = ("/ui/asset", "/ui/login/", "/ui/events", "/ui/logout", "/ui/logs/")  # of other pages
    shown = {page.path for page in PAGES if not page.path.startswith(parts)}
    assert {re.sub(r"\{\w+\}", "*", path) for path in shown} == documented


def test_without_a_session_a_browser_comes_to_the_login_and_from_there_to_its_page(page: ApiSandbox) -> None:
    browser = Browser(page)
    response = browser.request("GET", "/ui/runs?last=3")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fruns%3Flast%3D3")
    form = browser.form(response.headers["location"], "/ui/login")
    key = page.client().request("POST", "/org/acme/serviceaccount/viewer/-key", json={}).json()["key"]
    response = browser.send(form, key=key)
    assert (response.status_code, response.headers["location"]) == (303, "/ui/runs?last=3")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "serviceaccount/viewer" in browser.get("/")


def test_a_cookie_is_secure_where_browsers_speak_tls(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"address": "127.0.0.1:1", "url": f"https://{HOST}"}) as sandbox:
        link = sandbox.client().request("POST", "/login/link").json()["path"]
        assert "Secure" in Browser(sandbox).request("GET", link).headers["set-cookie"]


def test_a_wrong_key_is_refused_in_words_and_costs_time(page: ApiSandbox) -> None:
    browser = Browser(page)
    form = browser.form("/ui/login", "/ui/login")
    statuses = [browser.send(form, key="rk_000000000000.wrong").status_code for _ in range(7)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert "reconciler-session" not in browser.cookies
    page.clock.block(3600)


def test_the_api_takes_no_cookie(admin: Browser) -> None:
    assert admin.request("GET", "/org/acme/workload").status_code == 401
    assert admin.request("POST", "/org/acme/-approve", json={"digest": "0" * 32}).status_code == 401


def test_a_link_is_for_the_socket_and_logs_in_once(page: ApiSandbox) -> None:
    assert Browser(page).log_in_as("operator").request("POST", "/login/link").status_code == 401
    link = page.client(READER_PEER).request("POST", "/login/link").json()["path"]
    browser = Browser(page)
    assert browser.request("GET", link).status_code == 303
    assert not browser.has_form("/ui/resource/workload/shop/api", "/-restart")
    other = Browser(page)
    assert "was used" in other.get(link, 401)
    assert not other.cookies


def test_a_link_ends_after_ten_minutes(page: ApiSandbox) -> None:
    link = page.client().request("POST", "/login/link").json()["path"]
    page.clock.block(601)
    assert "too old" in Browser(page).get(link, 401)


def test_a_session_ends_with_its_key(page: ApiSandbox) -> None:
    admin = page.client()
    browser = Browser(page).log_in_as("viewer")
    keys = "/org/acme/serviceaccount/viewer/-key"
    newest = admin.get(keys)["items"][-1]["name"]
    browser.get("/")
    assert admin.request("DELETE", f"{keys}/{newest}").status_code == 204
    assert browser.request("GET", "/").headers["location"] == "/ui/login"


def test_a_logout_ends_the_session_and_what_the_browser_keeps(page: ApiSandbox) -> None:
    browser = Browser(page).log_in()
    former = dict(browser.cookies)
    response = browser.send(browser.form("/", "/ui/logout"))
    assert (response.status_code, response.headers["clear-site-data"]) == (303, '"cache"')
    browser.cookies = former
    assert browser.request("GET", "/").status_code == 303


def test_a_form_does_what_the_api_does_in_its_words(page: ApiSandbox, admin: Browser) -> None:
    path = "/ui/resource/workload/shop/api"
    response = admin.send(admin.form(path, "/-suspend"), reason="a look at it")
    assert (response.status_code, response.headers["location"]) == (303, path)
    shown = admin.get(path)
    assert "suspended" in shown
    assert "a look at it" in shown
    assert admin.has_form(path, "/-resume")
    assert not admin.has_form(path, "/-suspend")
    entry = page.client().get("/org/acme/-audit?limit=1000")["items"][-1]
    assert (entry["action"], entry["target"]) == ("POST", "/org/acme/gvc/shop/workload/api/-suspend")
    assert entry["outcome"] == 303
    assert entry["principal"] == "user/root"
    assert admin.send(admin.form(path, "/-resume")).status_code == 303
    assert not admin.has_form(path, "/-resume")


@pytest.mark.parametrize(
    "change",
    [{"form_token": ""}, {"form_token": "0" * 48}, {"headers": {"Origin": "https://evil.example"}}],
    ids=["without-token", "with-a-wrong-token", "of-another-site"],
)
def test_a_form_of_another_site_does_nothing(admin: Browser, change: dict[str, dict[str, str]]) -> None:
    path = "/ui/resource/workload/shop/api"
    response = admin.send(admin.form(path, "/-suspend"), **change)
    assert response.status_code == 403
    assert "text/html" in response.headers["content-type"]
    assert admin.has_form(path, "/-suspend")


def test_a_form_from_another_site_is_known_by_its_metadata(admin: Browser) -> None:
    form = admin.form("/ui/resource/workload/shop/api", "/-suspend")
    assert admin.send(form, {"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert admin.send(form, {"Origin": f"http://{HOST}.evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "path", ["/ui/do/GET/org/acme", "/ui/do/POST/login/token", "/ui/do/nothing", "/ui/do/POST/ui/x"]
)
def test_a_form_reaches_only_what_changes_something(admin: Browser, path: str) -> None:
    form = admin.form("/ui/resource/workload/shop/api", "/-suspend")
    assert admin.send(form._replace(action=f"/ui/do/{path}")).status_code in (404, 405)


def test_a_caller_is_offered_what_they_may_do_and_refused_the_rest(page: ApiSandbox) -> None:
    path = "/ui/resource/workload/shop/api"
    operator, viewer = Browser(page).log_in_as("operator"), Browser(page).log_in_as("viewer")
    form = operator.form(path, "/-restart")
    assert not viewer.has_form(path, "/-restart")
    token = viewer.form("/", "/ui/logout").fields["form_token"]
    response = viewer.send(form, form_token=token)
    assert response.status_code == 403
    assert "no permission `edit`" in response.text
    # Nothing runs at a location that only records, which is said in the same words as by the API.
    assert operator.send(form).status_code == 409


def test_a_caller_sees_only_what_they_may_view(page: ApiSandbox) -> None:
    browser = Browser(page).log_in_as("nobody")
    shown = browser.get("/") + browser.get("/ui/resources")
    assert "workload/shop/" not in shown
    assert "Changed last" not in shown
    for path in ("/ui/resource/workload/shop/api", "/ui/runs", "/ui/resource/source/main", "/ui/plan/source/main"):
        assert "no permission" in browser.get(path, 403)
    present, missing = (browser.get(f"/ui/resource/workload/shop/{name}", 403) for name in ("api", "nix"))
    # The id of each request differs.
    assert re.sub(r"api|<code>\w+</code>", "nix", present) == re.sub(r"<code>\w+</code>", "nix", missing)
    web = Browser(page).log_in_as("ci")
    assert re.findall(r'"key" href="([^"]+)"', web.get("/ui/resources")) == ["/ui/resource/workload/shop/web"]


def test_hostile_values_are_shown_and_do_nothing(admin: Browser) -> None:
    shown = admin.get("/ui/resource/workload/shop/evil")
    assert SCRIPT not in shown
    assert "&lt;script&gt;" in shown
    assert "\u202e" not in shown
    assert "\\u202e" in shown
    assert SCRIPT not in admin.get(f"/ui/resources?text={SCRIPT}&tag=x")
    assert SCRIPT not in admin.get(f"/ui/resource/workload/shop/{SCRIPT.replace('/', '%2F')}", 404)


def test_no_page_has_the_value_of_a_secret(admin: Browser) -> None:
    for path in ("/ui/resource/secret/db", "/ui/resource/workload/shop/api", "/ui/runs/1", "/"):
        assert "hunter2" not in admin.get(path)


def test_a_secret_is_revealed_to_who_asks_and_may_for_a_minute_and_in_the_audit_log(page: ApiSandbox) -> None:
    admin, operator = Browser(page).log_in(), Browser(page).log_in_as("operator")
    path, reveal = "/ui/resource/secret/db", "/ui/reveal/secret/db"
    form = admin.form(path, reveal)
    answer = admin.send(form)
    assert answer.status_code == 200, answer.text
    assert "hunter2-hunter2" in answer.text
    assert f'<meta http-equiv="refresh" content="60; url={path}">' in answer.text
    assert answer.headers["cache-control"] == "no-store"
    entry = page.client().get("/org/acme/-audit?limit=1000")["items"][-1]
    assert (entry["action"], entry["target"], entry["principal"]) == ("POST", reveal, "user/root")
    assert "hunter2" not in str(entry)
    assert admin.request("GET", reveal).status_code == 405
    assert admin.send(form._replace(fields={})).status_code == 403
    assert not operator.has_form(path, reveal)
    assert operator.send(form._replace(fields=operator.form(path, "/ui/logout").fields)).status_code == 403


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/ui/runs", "/ui/runs"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\nb", "/"),
        ("", "/"),
    ],
)
def test_a_login_goes_on_to_a_page_of_this_server(text: str, target: str) -> None:
    assert choose_target(text) == target


def test_a_server_without_the_page_has_the_api_alone(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, FILES, api={"page": False}) as sandbox:
        response = sandbox.client().request("GET", "/")
        assert (response.status_code, response.json()["code"]) == (404, "NotFound")
        assert sandbox.client().request("POST", "/ui/do/POST/org/acme/-approve").status_code == 404


def test_a_problem_is_a_page(admin: Browser) -> None:
    assert "did you mean" in admin.get("/ui/resources?kind=workloda", 404)
    assert "is no selector" in admin.get("/ui/resources?tag=,,", 400)
    assert "Not found" in admin.get("/ui/nothing", 404)
    assert "there is no run" in admin.get(f"/ui/runs/{'9' * 40}", 404)


def test_an_open_page_hears_that_something_was_recorded(page: ApiSandbox) -> None:
    async def story() -> None:
        async with page.watching("/ui/events") as stream:
            assert await stream.line() == "retry: 1000"
            while await stream.line() != "event: open":
                pass
            done = await asyncio.to_thread(page.run, "suspend", "workload/shop/web")
            assert done.returncode == 0, done.stderr
            while await stream.line() != "event: recorded":
                pass

    asyncio.run(story())
    assert page.run("resume", "workload/shop/web").returncode == 0


def test_the_libraries_of_others_are_as_they_were_published() -> None:
    static = files("reconciler.api.page").joinpath("static")
    assert {name: hashlib.sha256(static.joinpath(name).read_bytes()).hexdigest() for name in VENDORED} == VENDORED


def test_a_browser_keeps_a_file_until_it_changes(admin: Browser) -> None:
    [path] = re.findall(r'href="(/ui/asset/[^"]+page.css)"', admin.get("/"))
    assert "immutable" in admin.request("GET", path).headers["cache-control"]
    assert admin.request("GET", "/ui/asset/old/page.css").headers["cache-control"] == "no-cache"
    assert admin.request("GET", "/ui/asset/old/..%2Ftable.py").status_code == 404
    assert len(admin.get(path)) <= 15 * 1024


def test_what_an_action_did_is_shown_by_the_page_that_follows_it(page: ApiSandbox) -> None:
    admin = Browser(page).log_in()
    path = "/ui/resource/workload/shop/web"
    done = admin.send(admin.form(path, "/-suspend"), reason="a look")
    assert done.status_code == 303
    # The page that is left may ask once more before the next one does.
    assert 'class="notice"' not in admin.request("GET", path, headers={"HX-Request": "true"}).text
    assert 'class="notice"' in admin.get(path)
    assert 'class="notice"' not in admin.get(path)
    assert admin.send(admin.form(path, "/-resume")).status_code == 303


@pytest.mark.parametrize(("account", "is_offered"), [("viewer", True), ("operator", True), ("nobody", False)])
def test_messages_are_in_the_navigation_of_those_who_may_read_them(
    page: ApiSandbox, account: str, is_offered: bool
) -> None:
    browser = Browser(page).log_in_as(account)
    for path in ("/", "/ui/resources", "/ui/resource/nothing/at/all"):
        text = browser.request("GET", path).text
        assert ('<a href="/ui/notifications"' in text) is is_offered, path
        assert ("<kbd>m</kbd>" in text) is is_offered, path
    assert browser.request("GET", "/ui/notifications").status_code == (200 if is_offered else 403)
