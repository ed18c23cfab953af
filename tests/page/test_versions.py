"""A resource goes back to one of its versions, by mouse, and where no script runs."""

from __future__ import annotations

import pytest

from tests.page.site import Site
from tests.support.sandbox import eventually

pytestmark = pytest.mark.browser
WEB = "/ui/resource/workload/shop/web"


def read_greeting(site: Site) -> str:
    """What the manifest of the workload has at the tip of the branch."""
    return site.sandbox.repo.git("show", "main:shop/web.yaml")


@pytest.mark.parametrize("with_scripts", [True, False])
def test_a_workload_goes_back_after_its_plan_was_shown(site: Site, with_scripts: bool) -> None:
    before = read_greeting(site)
    with site.visit(java_script_enabled=with_scripts) as page:
        page.goto(WEB)
        page.get_by_role("link", name="roll back to it").first.click()
        page.get_by_text("1 to update").wait_for()
        assert page.get_by_text("spec.containers[main].env").count() > 0
        assert read_greeting(site) == before
        page.get_by_label("Reason").fill("the greeting was better")
        page.get_by_role("button", name="Roll back").click()
        assert "is as in" in page.locator(".notice").inner_text()
        assert read_greeting(site) != before
        commit = site.sandbox.repo.git("rev-parse", "main").strip()
        eventually(lambda: commit[:12] in site.sandbox.run("describe", "workload/shop/web").stdout, "it is applied")


def test_a_viewer_is_not_offered_it(site: Site) -> None:
    with site.visit("viewer") as page:
        page.goto(WEB)
        assert page.get_by_role("link", name="roll back to it").count() == 0
        page.goto("/ui/rollback/workload/shop/web?revision=main")
        assert "no permission" in page.locator("main").inner_text()
