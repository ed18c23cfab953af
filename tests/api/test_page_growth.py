"""The page where there is much: what it bounds, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.model.record import Health
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
