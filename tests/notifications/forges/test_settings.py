"""The settings of forges: what they need, and that docs/forges.md shows ones that load."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.notifications.forges.registry import ForgeSet
from reconciler.notifications.message import EventType, State
from reconciler.notifications.rules import Rules, Subject
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.settings import SettingsError, load_settings
from reconciler.settings.forges import ForgeSettings
from reconciler.settings.notifications import NotificationSettings
from tests.notifications.harness import NEXT, Post

PAGE = (Path(__file__).parents[3] / "docs" / "forges.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(notifications:.*?)```", PAGE, re.DOTALL)
HOSTS = {
    "github": "github.com", "gitlab": "gitlab.example.com", "forgejo": "git.example.com", "bitbucket": "bitbucket.org",
    "bitbucket-server": "bitbucket.example.com",
}  # fmt: skip
HEAD = "org: acme\nsources:\n  - {name: shop, url: 'https://%s/acme/shop.git'}\n"


def test_the_page_has_an_example_for_each_forge() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_the_page_shows_is_complete(example: str, tmp_path: Path) -> None:
    [name] = re.findall(r"^      type: ([\w-]+)", example, re.MULTILINE)
    file = tmp_path / "settings.yaml"
    file.write_text(HEAD % HOSTS[name] + example)
    settings = load_settings(file)
    assert settings.notifications is not None
    [(_, forge)] = settings.notifications.forges.items()
    assert list(ForgeSet(name, forge, settings.sources, SystemClock()).forges) == ["shop"]
    assert forge.pull_requests is not None


@pytest.mark.parametrize(
    ("forges", "words"),
    [
        ("{git: {type: github}}", "the forge `git` has either a `tokenFile` or, at GitHub, an `app`"),
        ("{git: {tokenFile: t, app: {id: '1', keyFile: k}}}", "has either a `tokenFile`"),
        ("{git: {tokenFile: t, sources: [bank]}}", "there is no source `bank`"),
        ("{ops: {tokenFile: t}}", "the forge `ops` has the name of a channel or of a rule"),
        ("{git: {tokenFile: t, url: 'https://ann:right@github.com'}}", "an address without a password"),
    ],
)
def test_a_fault_of_a_forge_is_named_at_its_place(forges: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    hook = "{ops: {webhook: {url: 'https://a.example.com', secretFile: s}}}"
    file.write_text(HEAD % "github.com" + f"notifications:\n  channels: {hook}\n  forges: {forges}\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(file)
    assert words in str(raised.value)
    assert "settings.yaml:6:" in str(raised.value)


def test_a_mute_leaves_no_commit_running_at_a_forge(make_post: Callable[..., Post]) -> None:
    post = make_post(NotificationSettings(forges={"git": ForgeSettings()}))
    post.run("running")
    post.collector.collect()
    post.records.mutes.put("all", "the database moves", "ada", post.clock.now() + 60)
    post.run("applied")
    post.collector.collect()
    assert post.mine.deliveries.list(10)[0].status is DeliveryStatus.WAITING
    post.records.mutes.put("rule/git", "the forge moves", "ada", post.clock.now() + 60)
    post.run("applied", NEXT)
    post.collector.collect()
    assert post.mine.deliveries.list(10)[0].status is DeliveryStatus.MUTED


@pytest.mark.parametrize(
    "forge", [ForgeSettings(sources=("main",)), ForgeSettings(type="gitea", url="https://git.acme")]
)
def test_a_forge_has_only_messages_about_its_own_sources(make_post: Callable[..., Post], forge: ForgeSettings) -> None:
    post = make_post(NotificationSettings(forges={"git": forge}), sources=("main", "edge"))
    urls = ("https://git.acme/shop.git", "https://other.acme/edge.git")
    sources = tuple(
        msgspec.structs.replace(source, url=url) for source, url in zip(post.settings.sources, urls, strict=True)
    )
    post.settings = msgspec.structs.replace(post.settings, sources=sources)
    post.collector = post.new_collector()
    post.collector.open()
    for source in ("edge", "main"):
        post.run("applied", source=source)
    post.collector.collect()
    assert [delivery.source for delivery in post.mine.deliveries.list()] == ["main"]


def test_a_forge_is_shown_all_that_happens_to_a_commit_and_nothing_else() -> None:
    rules = Rules(NotificationSettings(forges={"git": ForgeSettings()}))
    for event in EventType:
        for state in State:
            is_of_commit = event in (EventType.RUN, EventType.REFUSED)
            found = rules.find_for("git", Subject(event, state, sources=("shop",)))
            assert (found is not None) is is_of_commit, (event, state)
