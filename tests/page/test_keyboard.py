"""The keyboard alone: it reaches, in reading order and visibly, all that a mouse can use in every view."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from tests.page.site import NARROW, WIDE, Site
from tests.page.table import VIEWS
from tests.support.sandbox import eventually

pytestmark = pytest.mark.browser
WEB = "/ui/resource/workload/shop/web"
MOST_STOPS = 600
FIND_USABLE = """() => {
    const native = 'a[href], button, input:not([type=hidden]), select, textarea, summary';
    // A list of completions is used by the arrow keys of its box, and words of a label by its field.
    const apart = '[role=option], [role=option] *, label, label *';
    const shown = (one) => one.checkVisibility() || one.matches('.skip');
    const usable = [...document.querySelectorAll(native)].filter((one) => shown(one) && !one.disabled);
    const clicked = [...document.querySelectorAll('body *')].filter((one) => shown(one) && !one.matches(apart)
        && getComputedStyle(one).cursor === 'pointer' && !one.closest(native));
    window.everything = [...document.querySelectorAll('*')];
    return [...new Set([...usable, ...clicked])].map((one) => window.everything.indexOf(one));
}"""
"""The places in the document of what a mouse can use; ``window.everything`` has what is at each place."""
READ_FOCUS = """() => {
    const one = document.activeElement;
    if (one === null || one === document.body) return null;
    const box = one.getBoundingClientRect();
    const style = getComputedStyle(one.closest('#terminal') ?? one);
    return {
        place: (window.everything ?? []).indexOf(one),
        html: one.outerHTML.slice(0, 160),
        summary: one.matches('summary') && !one.parentElement.open,
        terminal: one.closest('#terminal') !== null,
        is_visible: one.matches(':focus-visible'),
        outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
        in_view: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        left: box.left, top: box.top + scrollY, bottom: box.bottom + scrollY,
    };
}"""


class Walk(NamedTuple):
    """What had the focus one after the other, as READ_FOCUS reads it, and what a mouse can use but never had it."""

    stops: list[dict[str, Any]]
    missed: list[str]


@pytest.fixture(scope="module")
def names(site: Site) -> dict[str, str]:
    """The names in the addresses of views."""
    return site.find_names()


def walk_with_tab(page: Any) -> Walk:
    """Press Tab from the top of the page to its end; a fold that is shut is opened by Enter on the way."""
    page.evaluate("document.activeElement?.blur()")
    stops: list[dict[str, Any]] = []
    reached: set[int] = set()
    usable = set(page.evaluate(FIND_USABLE))
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate(READ_FOCUS)
        # After the last one, Chromium goes on to itself, and then to the first one again.
        if stop is None or stop["place"] in reached:
            break
        reached.add(stop["place"])
        stops.append(stop)
        if stop["summary"]:
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.activeElement.parentElement.open")
            usable = set(page.evaluate(FIND_USABLE))
    missed = page.evaluate(
        "places => places.map((one) => window.everything[one].outerHTML.slice(0, 160))", [*sorted(usable - reached)]
    )
    return Walk(stops, missed)


def check_stops(stops: list[dict[str, Any]]) -> None:
    """Check that each stop is seen, and follows the one before as people read."""
    assert stops
    unseen = [stop["html"] for stop in stops if not (stop["is_visible"] and stop["outline"] >= 1)]
    assert unseen == [], "the focus is not visible"
    assert [stop["html"] for stop in stops if not stop["in_view"] and not stop["terminal"]] == [], "it is out of view"
    places = [stop["place"] for stop in stops]
    assert places == sorted(places), "the focus jumps in the document"
    jumps = [
        (before["html"], after["html"])
        for before, after in pairwise(stops)
        # What is beside it may begin above it.
        if after["bottom"] < before["top"] and after["left"] <= before["left"] and not after["terminal"]
    ]
    assert jumps == [], "the focus goes up the page"


@pytest.mark.parametrize("name", VIEWS)
def test_tab_reaches_all_that_a_mouse_can_use(site: Site, names: dict[str, str], name: str) -> None:
    with site.visit(viewport={"width": WIDE, "height": 800}) as page:
        # What is shown stays as it is while somebody walks through it.
        page.route("**/ui/events**", lambda route: route.abort())
        page.goto(VIEWS[name].path.format(**names))
        page.wait_for_load_state("networkidle")
        if name == "exec":
            page.get_by_role("button", name="Open a shell").wait_for()
        walk = walk_with_tab(page)
        assert walk.missed == []
        check_stops(walk.stops)


@pytest.mark.parametrize("name", ["home", "workload", "logs"])
def test_tab_reaches_everything_on_a_narrow_screen(site: Site, names: dict[str, str], name: str) -> None:
    with site.visit(viewport={"width": NARROW, "height": 640}) as page:
        page.route("**/ui/events**", lambda route: route.abort())
        page.goto(VIEWS[name].path.format(**names))
        page.wait_for_load_state("networkidle")
        walk = walk_with_tab(page)
        assert walk.missed == []
        check_stops(walk.stops)


def press_on(page: Any, element: Any, key: str) -> None:
    """Give ``element`` the focus, and press the key."""
    element.focus()
    page.keyboard.press(key)


def test_the_first_stop_skips_the_navigation(site: Site) -> None:
    with site.visit() as page:
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.getElementById('main').contains(document.activeElement)")


def test_enter_and_space_do_what_a_click_does(site: Site) -> None:
    with site.visit() as page:
        page.goto("/")
        page.context.grant_permissions(["clipboard-write", "clipboard-read"])
        copy = page.get_by_role("button", name="Copy").last
        press_on(page, copy, "Enter")
        page.get_by_role("button", name="Copied").wait_for()
        press_on(page, page.get_by_role("link", name="Resources"), "Enter")
        page.wait_for_url("**/ui/resources")
        page.get_by_label("Kind").focus()
        page.keyboard.type("workload")
        press_on(page, page.get_by_role("button", name="Show"), "Space")
        page.wait_for_url("**kind=workload**")
        press_on(page, page.get_by_role("link", name="What is below workload/shop/web", exact=True), "Enter")
        page.locator("th.deployment").wait_for()
        # Who unfolds a row goes on from there, and not from the top.
        page.keyboard.press("Tab")
        assert "workload/shop/web" in page.evaluate("document.activeElement.textContent")
        page.goto(WEB)
        star = page.get_by_role("button", name="Favourite")
        for pressed in ("true", "false"):
            press_on(page, star, "Space")
            assert star.get_attribute("aria-pressed") == pressed


def test_escape_takes_a_confirmation_back_and_the_focus_with_it(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/resource/volumeset/shop/media")
        summary = page.locator("details.confirm summary").first
        press_on(page, summary, "Enter")
        field = page.get_by_label("Name", exact=True)
        page.keyboard.press("Tab")
        assert field.evaluate("one => one === document.activeElement")
        page.keyboard.type("a?b/c")
        assert page.get_by_role("dialog").count() == 0
        page.keyboard.press("Escape")
        assert page.locator("details.confirm[open]").count() == 0
        assert summary.evaluate("one => one === document.activeElement")
        page.goto(WEB)
        press_on(page, page.locator(".actions-box summary"), "Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        assert page.locator(".actions-box[open]").count() == 0


def test_the_list_of_keys_gives_the_focus_back(site: Site) -> None:
    with site.visit() as page:
        page.goto(WEB)
        link = page.get_by_role("link", name="Logs", exact=True).last
        for leave in ("Escape", "Enter"):
            link.focus()
            page.keyboard.press("?")
            dialog = page.get_by_role("dialog")
            assert dialog.is_visible()
            page.keyboard.press("/")
            for _ in range(4):
                page.keyboard.press("Tab")
                assert page.evaluate(
                    "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
                )
            dialog.get_by_role("button").focus()
            page.keyboard.press(leave)
            dialog.wait_for(state="hidden")
            assert link.evaluate("one => one === document.activeElement")


@pytest.mark.parametrize("caller", ["", "viewer"])
def test_each_key_of_the_list_opens_its_view(site: Site, caller: str) -> None:
    paths = {"h": "/", "r": "/ui/resources", "u": "/ui/runs", "l": "/ui/logs", "m": "/ui/notifications"}
    with site.visit(caller) as page:
        page.goto(WEB)
        listed = page.locator("#shortcuts dt").all_text_contents()
        assert {words for words in listed if words.startswith("g ")} == {f"g {key}" for key in paths}
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.evaluate("document.activeElement.blur()")
        for key, path in paths.items():
            page.keyboard.press("g")
            page.keyboard.press(key)
            page.wait_for_url(f"**{path}")


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if name not in ("login",)])
def test_no_key_is_a_shortcut_while_somebody_writes(site: Site, names: dict[str, str], name: str) -> None:
    with site.visit() as page:
        page.goto(VIEWS[name].path.format(**names))
        address = page.url
        fields = page.locator("input:not([type=hidden]):not([type=number]):visible")
        for place in range(fields.count()):
            field = fields.nth(place)
            if field.is_editable():
                field.fill("")
                field.press_sequentially("?/gh")
                assert field.input_value() == "?/gh", name
                page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0
        assert page.url == address


@pytest.mark.parametrize("path", ["/", "/ui/runs", "/ui/resource/source/main"])
def test_what_has_the_focus_keeps_it_when_the_page_changes(site: Site, path: str) -> None:
    first, second = (f"Add the {place} group for the focus on {path}" for place in ("first", "second"))
    group = f"focus-{len(path)}"
    with site.visit() as page:
        page.goto(path)
        page.locator("main[data-live]").wait_for()
        # The age of a run that is seconds old differs each time, so that its row is never the one that was there.
        site.sandbox.repo.commit({f"{group}.yaml": f"kind: group\nname: {group}\n"}, first)
        page.get_by_text(first).first.wait_for()
        row = page.locator("tbody tr", has_text=first).first
        address = row.locator("th a").get_attribute("href")
        row.locator("th a").focus()
        ages = "[...document.querySelectorAll('tbody time')].map((one) => one.textContent).join()"
        before = page.evaluate(ages)
        page.wait_for_function(f"before => {ages} !== before", arg=before, timeout=90_000)
        # A new run is above the one that has the focus.
        site.sandbox.repo.commit({f"{group}.yaml": None}, second)
        page.get_by_text(second).first.wait_for()
        assert page.evaluate("document.activeElement.getAttribute('href')") == address


def test_a_search_leaves_the_focus_where_somebody_writes(site: Site) -> None:
    with site.visit() as page:
        page.goto("/ui/resources?kind=workload")
        search = page.get_by_label("Text")
        search.press_sequentially("web")
        page.get_by_role("link", name="workload/shop/broken", exact=True).wait_for(state="detached")
        assert search.evaluate("one => one === document.activeElement")


def test_a_terminal_is_left_by_escape_and_tab(site: Site) -> None:
    with site.visit("operator") as page:
        page.goto("/ui/exec/workload/shop/web")
        page.get_by_text("leaves the terminal").wait_for()
        box = page.locator("#terminal textarea")
        is_in_terminal = "document.getElementById('terminal').contains(document.activeElement)"
        # Without a shell it is no trap.
        box.focus()
        page.keyboard.press("Tab")
        assert not page.evaluate(is_in_terminal)
        press_on(page, page.get_by_role("button", name="Open a shell"), "Enter")
        page.get_by_text("Connected.").wait_for()
        page.wait_for_function(is_in_terminal)
        assert page.evaluate("getComputedStyle(document.getElementById('terminal')).outlineStyle") == "solid"
        page.keyboard.type("echo '?/g")
        page.keyboard.press("Tab")
        assert page.evaluate(is_in_terminal)
        page.keyboard.type("h'\n")
        eventually(lambda: page.locator(".xterm-rows").inner_text().count("?/gh") >= 1, "the shell has each key")
        assert page.locator("dialog[open]").count() == 0
        for key in ("Tab", "Shift+Tab"):
            box.focus()
            page.keyboard.press("Escape")
            page.keyboard.press(key)
            assert not page.evaluate(is_in_terminal), key
