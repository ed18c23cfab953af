"""The tree of resources: what is below each level, who sees it, and addresses that can be shared."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.sandbox import workload

API, WEB = "workload/shop/api", "workload/shop/web"
OTHER = "kind: gvc\nname: zoo\nspec: {staticPlacement: {locationLinks: [//location/here, //location/there]}}\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with two GVCs, of which one has two locations."""
    lion = workload("lion").replace("gvc: shop", "gvc: zoo")
    files = {"zoo/gvc.yaml": OTHER, "zoo/lion.yaml": lion}
    with api_sandbox(tmp_path_factory.mktemp("tree"), FILES | files) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def admin(page: ApiSandbox) -> Browser:
    """The browser of a superuser."""
    return Browser(page).log_in()


def find_folds(text: str) -> dict[str, tuple[str, bool]]:
    """What unfolds → the address of the link, and whether it is unfolded."""
    links = re.findall(r'class="fold" id="([^"]+)" href="([^"]+)" aria-expanded="(\w+)"', text)
    return {name: (html.unescape(address), state == "true") for name, address, state in links}


def find_rows(text: str) -> list[str]:
    """The rows of the list, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody>")[2], re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", html.unescape(row)).split()) for row in rows]


def test_each_level_leads_to_the_one_below_and_back(admin: Browser) -> None:
    kinds = admin.get("/ui/resources?gvc=zoo")
    assert '<a href="/ui/resources?gvc=zoo&amp;kind=workload">workload</a> 1' in kinds
    level = admin.get("/ui/resources?gvc=zoo&kind=workload")
    address, is_open = find_folds(level)["workload/zoo/lion"]
    assert not is_open
    assert len(find_rows(level)) == 1
    deployments = admin.get(address)
    assert [row.split()[1:3] for row in find_rows(deployments)[1:]] == [["▸", "What"]] * 2
    assert "at here" in find_rows(deployments)[1]
    assert "at there" in find_rows(deployments)[2]
    below, _ = find_folds(deployments)["workload/zoo/lion@there"]
    replicas = admin.get(below)
    assert find_rows(replicas)[-1] == "No replica runs there."
    folds = find_folds(replicas)
    assert folds["workload/zoo/lion@there"][1]
    assert not folds["workload/zoo/lion@here"][1]
    # A second click folds it again: first the replicas, then the locations.
    assert find_rows(admin.get(folds["workload/zoo/lion@there"][0])) == find_rows(deployments)
    assert find_rows(admin.get(find_folds(deployments)["workload/zoo/lion"][0])) == find_rows(level)


def test_the_kinds_of_a_gvc_are_counted_as_those_of_all(page: ApiSandbox, admin: Browser) -> None:
    counted = re.compile(r">(\w+)</a> ([\d,]+)")
    shop, zoo = (dict(counted.findall(admin.get(f"/ui/resources?gvc={gvc}"))) for gvc in ("shop", "zoo"))
    whole = dict(counted.findall(admin.get("/ui/resources")))
    assert int(shop["workload"]) + int(zoo["workload"]) == int(whole["workload"])
    assert "gvc" not in zoo
    # Who sees a part of it gets no numbers of the whole.
    assert "</a> 1\n" not in Browser(page).log_in_as("ci").get("/ui/resources?gvc=zoo")


def test_what_is_unfolded_is_shown_wherever_the_list_begins(admin: Browser) -> None:
    shared = admin.get(f"/ui/resources?gvc=shop&limit=1&open={WEB}")
    rows = find_rows(shared)
    assert WEB in rows[0]
    assert "at here" in rows[1]
    assert admin.get(f"/ui/resources?open={WEB}").count(f'href="/ui/resource/{WEB}"') == 1


def test_the_search_and_its_filters_stay_while_something_is_unfolded(admin: Browser) -> None:
    address, _ = find_folds(admin.get("/ui/resources?kind=workload&text=api"))[API]
    assert address.partition("#")[0] == "/ui/resources?kind=workload&text=api&open=workload%2Fshop%2Fapi"
    assert not any(WEB in row for row in find_rows(admin.get(address)))


def test_what_a_caller_may_not_view_is_not_unfolded(page: ApiSandbox) -> None:
    browser = Browser(page).log_in_as("ci")
    hidden, missing = (browser.get(f"/ui/resources?open=workload/shop/{name}@here") for name in ("api", "nix"))
    assert hidden.replace("api", "nix") == missing
    assert 'class="deployment"' not in hidden
    assert 'class="deployment"' in browser.get(f"/ui/resources?open={WEB}")


@pytest.mark.parametrize("text", ["web", "workload/shop", "workload/shop/web/x", "<script>"])
def test_a_name_that_is_no_key_is_refused(admin: Browser, text: str) -> None:
    assert "is not a key" in admin.get(f"/ui/resources?open={text}", 400)
