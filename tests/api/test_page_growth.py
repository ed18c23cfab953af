"""The page where there is much: what it bounds, and what it costs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from reconciler.model.record import Health
from reconciler.queries import browsing
from reconciler.records.store import FILE, Records
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.sandbox import workload

MANY = 60
ACCESS = """
---
kind: serviceaccount
name: web
---
kind: serviceaccount
name: viewer
---
kind: group
name: viewers
memberLinks: [//serviceaccount/viewer]
---
kind: policy
name: web-views-the-last
targetKind: workload
targetLinks: [//gvc/shop/workload/zz-last]
bindings: [{permissions: [view], principalLinks: [//serviceaccount/web]}]
"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """Sixty workloads that are not well, and another one behind all of them."""
    names = [f"many-{number:02}" for number in range(MANY)] + ["zz-last"]
    files = {f"shop/{name}.yaml": workload(name) for name in names}
    more = {"access.yaml": FILES["access.yaml"] + ACCESS}
    with api_sandbox(tmp_path_factory.mktemp("crowd"), FILES | files | more) as sandbox:
        records = Records.open(sandbox.state / FILE)
        with records.transaction():
            for name in names:
                for record in records.applied.get(f"workload/shop/{name}"):
                    records.applied.update_seen(record.key, record.location, Health.UNHEALTHY, b"{}")
        records.close()
        yield sandbox


def test_the_first_screen_shows_the_first_of_many_and_counts_the_others(crowd: ApiSandbox) -> None:
    text = Browser(crowd).log_in_as("viewer").get("/")
    assert text.count('<article class="card bad">') == 20
    assert f"And {MANY + 1 - 20} more" in text
    assert "workload/shop/zz-last" not in text


def test_who_sees_little_finds_it_on_the_first_screen_among_many(crowd: ApiSandbox) -> None:
    text = Browser(crowd).log_in_as("web").get("/")
    assert "workload/shop/zz-last" in text
    assert "many-" not in text
    assert "more" not in text.partition("<main")[2]


@pytest.mark.parametrize("query", ["text=zz", "kind=workload", "gvc=shop&text=last", "state=unwell", "text=many"])
def test_a_search_of_who_sees_little_reads_little(
    crowd: ApiSandbox, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    read: list[str] = []
    list_keys = browsing.list_keys

    def count(settings: Any, records: Any, keys: list[str]) -> Any:
        read.extend(keys)
        return list_keys(settings, records, keys)

    monkeypatch.setattr(browsing, "list_keys", count)
    text = Browser(crowd).log_in_as("web").get(f"/ui/resources?{query}")
    assert ("workload/shop/zz-last" in text) == (query != "text=many")
    assert "many-0" not in text
    assert len(read) <= 2


@pytest.mark.parametrize("caller", ["viewer", "web"])
def test_the_pages_of_all_resources_have_each_once_and_in_order(crowd: ApiSandbox, caller: str) -> None:
    browser, path, keys = Browser(crowd).log_in_as(caller), "/ui/resources?state=&limit=7&text=/", []
    while path:
        text = browser.get(path).partition("<tbody>")[2]
        keys += [unquote(key) for key in re.findall(r'class="key" href="/ui/resource/([^"]+)"', text)]
        following = re.search(r'class="button" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    assert keys == sorted(set(keys))
    wanted = {"gvc/shop", "policy/web-edits", *(f"workload/shop/many-{number:02}" for number in range(MANY))}
    assert wanted <= set(keys) if caller == "viewer" else keys == ["workload/shop/zz-last"]


def test_files_of_the_page_are_compressed_for_who_takes_that(crowd: ApiSandbox) -> None:
    browser = Browser(crowd)
    path = next(part for part in browser.get("/ui/login").split('"') if part.endswith("htmx.min.js"))
    plain = browser.request("GET", path, headers={"Accept-Encoding": "identity"})
    packed = browser.request("GET", path, headers={"Accept-Encoding": "gzip, br"})
    assert (plain.content, packed.headers["content-encoding"]) == (packed.content, "gzip")
    assert packed.num_bytes_downloaded < plain.num_bytes_downloaded / 2
    assert plain.headers["vary"] == "Accept-Encoding"


def test_a_first_visit_among_many_that_are_not_well_takes_little_of_the_wire(crowd: ApiSandbox) -> None:
    browser = Browser(crowd).log_in()
    page = browser.request("GET", "/")
    assets = dict.fromkeys(part for part in page.text.split('"') if part.startswith("/ui/asset/"))
    answers = [browser.request("GET", path, headers={"Accept-Encoding": "gzip"}) for path in assets]
    assert len(answers) == 4
    assert sum(answer.num_bytes_downloaded for answer in [page, *answers]) < 60_000


def test_no_link_that_logs_in_is_taken_for_an_action(crowd: ApiSandbox) -> None:
    client = crowd.client()
    paths = [client.request("POST", "/login/link").json()["path"] for _ in range(64)]
    assert not [path for path in paths if path.rpartition("/")[2].startswith("-")]
