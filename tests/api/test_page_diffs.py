"""Differences of many files on the page: some at a time, each once, and what moved between files as one change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest

from reconciler.api.page.diffs import MOST_FILES
from reconciler.queries import revisions
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.sandbox import workload

NAMES = [f"app-{number:03}" for number in range(2 * MOST_FILES + 5)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """Many workloads that changed, a file each, and one that moved from the first file to the last one."""
    files = {f"shop/{name}.yaml": workload(name) for name in NAMES}
    first, last = f"shop/{NAMES[0]}.yaml", f"shop/{NAMES[-1]}.yaml"
    moved = workload("moved")
    before = FILES | files | {first: f"{files[first]}---\n{moved}"}
    with api_sandbox(tmp_path_factory.mktemp("many"), before) as sandbox:
        changed = {path: re.sub("(?<!name: )app-", "new-", text) for path, text in files.items()}
        changed[last] += "---\n" + moved.replace("image/moved", "image/changed")
        sandbox.repo.commit(changed)
        assert sandbox.run("apply").returncode == 0
        yield sandbox


def read_pages(sandbox: ApiSandbox) -> list[str]:
    """All pages with the differences, in their order."""
    browser, path, pages = Browser(sandbox).log_in(), "/ui/diff/source/main?from=HEAD~1&to=HEAD", []
    while path:
        pages.append(browser.get(path))
        link = re.search(r'href="([^"]+)">The next files', pages[-1])
        path = unescape(link[1]) if link else ""
    return pages


def list_steps(page: str) -> list[str]:
    """The steps of a page: the action and the key of each."""
    return re.findall(r"(?:create|update|delete|replace) workload/shop/[\w-]+", re.sub(r"<[^>]+>", "", page))


def test_the_pages_have_each_step_once_and_no_other(shop: ApiSandbox) -> None:
    pages = read_pages(shop)
    assert len(pages) == 3
    assert all(f"{len(NAMES)} files differ" in page for page in pages)
    steps = [step for page in pages for step in list_steps(page)]
    whole = shop.client().get("/org/acme/source/main/-diff?from=HEAD~1&to=HEAD")["steps"]
    assert sorted(steps) == sorted(f"{step['action']} {step['key']}" for step in whole)
    assert len(steps) == len(NAMES) + 1


def test_what_moved_to_a_file_of_another_page_is_one_update(shop: ApiSandbox) -> None:
    first, *_, last = read_pages(shop)
    assert "update workload/shop/moved" in list_steps(first)
    assert "workload/shop/moved" not in " ".join(list_steps(last))


def test_of_one_resource_only_its_file_is_read(shop: ApiSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.queries.committed import CommittedFiles

    decoded: list[str] = []
    decode = CommittedFiles._decode

    def count(self: CommittedFiles, blob: str) -> object:
        decoded.append(blob)
        return decode(self, blob)

    monkeypatch.setattr(CommittedFiles, "_decode", count)
    browser = Browser(shop).log_in()
    page = browser.get(f"/ui/diff/source/main?from=HEAD~1&to=HEAD&key=workload/shop/{NAMES[7]}")
    assert list_steps(page) == [f"update workload/shop/{NAMES[7]}"]
    assert len(decoded) <= 4  # the file in both revisions, and that of its GVC
    decoded.clear()
    moved = browser.get("/ui/diff/source/main?from=HEAD~1&to=HEAD&key=workload/shop/moved")
    assert list_steps(moved) == ["update workload/shop/moved"]
    decoded.clear()
    browser.get("/ui/diff/source/main?from=HEAD~1&to=HEAD")
    assert len(decoded) <= 2 * MOST_FILES + 6


def test_a_place_that_no_page_has_shows_nothing(shop: ApiSandbox) -> None:
    page = Browser(shop).log_in().get("/ui/diff/source/main?from=HEAD~1&to=HEAD&after=zzz")
    assert list_steps(page) == []
    assert "Nothing that you may view differs between the two on this page" in page


@pytest.mark.parametrize(
    ("text", "may_declare"),
    [
        ("kind: gvc\nname: x\n", True),
        ('{"kind":"gvc","name":"x"}', True),
        ('description: "&k"\nkind: &k gvc\n', True),
        ('{"kind":"\\u0067vc"}', True),
        ('kind: "g\\\nvc"\n', True),
        ("kind: !!str gvc\n", True),
        ("gvc: shop\nkind: workload\n", False),
        ('{"gvc": "shop", "kind": "workload", "link": "//gvc/shop/x", "name": "gvc-1", "path": "*"}', False),
    ],
)
def test_a_file_that_may_declare_a_gvc_is_known_by_its_bytes(text: str, may_declare: bool) -> None:
    raw = text.encode()
    assert (revisions._GVC.search(raw) is not None or revisions._ESCAPE.search(raw) is not None) == may_declare
