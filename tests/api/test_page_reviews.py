"""Reviews on the first screen: the open pull requests that the daemon follows at a forge."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from reconciler.notifications.forges.followed import FollowedPull, FollowedPulls, find_followed
from reconciler.queries.sources import list_open_reviews
from reconciler.settings import SourceSettings, load_settings
from reconciler.settings.forges import ForgeSettings, PullRequestSettings
from reconciler.settings.notifications import NotificationSettings
from tests.api.browser import Browser
from tests.support.api import ApiSandbox, api_sandbox

FORGE = {
    "type": "gitea", "url": "https://git.example.com", "sources": ["main"], "repository": "acme/shop",
    "tokenFile": "/etc/token", "pullRequests": {},
}  # fmt: skip
PULLS = (
    FollowedPull(5, head="a" * 40, summary="1 to create <b>"),
    FollowedPull(6, head="b" * 40, summary="1 to update", merged="c" * 40),
    FollowedPull(7, head="d" * 40),
    FollowedPull(8),
)


def follow(sandbox: ApiSandbox, *pulls: FollowedPull) -> None:
    """Let the daemon of ``sandbox`` have followed ``pulls``."""
    followed = FollowedPulls(find_followed(load_settings(sandbox.settings_file), "main"))
    for pull in pulls:
        followed.put(pull)


def test_the_first_screen_lists_the_open_ones(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, notifications={"forges": {"git": FORGE}}) as sandbox:
        admin = Browser(sandbox).log_in()
        assert "Nothing waits." in admin.get("/")
        follow(sandbox, *PULLS)
        shown = admin.get("/")
    assert "Nothing waits." not in shown
    assert 'href="https://git.example.com/acme/shop/pulls/5"' in shown
    assert "1 to create &lt;b&gt;" in shown
    assert "main #7" in shown
    assert "It is not planned yet." in shown
    assert "#6" not in shown
    assert "#8" not in shown
    assert shown.index("main #7") < shown.index("main #5")


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("github", "acme/shop/pull/5"),
        ("gitlab", "acme/shop/-/merge_requests/5"),
        ("forgejo", "acme/shop/pulls/5"),
        ("bitbucket", "acme/shop/pull-requests/5"),
        ("bitbucket-server", "projects/acme/repos/shop/pull-requests/5"),
    ],
)
def test_the_link_is_that_of_the_forge(kind: str, path: str, tmp_path: Path) -> None:
    with api_sandbox(tmp_path) as sandbox:
        follow(sandbox, PULLS[0])
        settings = load_settings(sandbox.settings_file)
    forge = ForgeSettings(type=kind, url="https://git.example.com", pull_requests=PullRequestSettings())  # type: ignore[arg-type]
    source = SourceSettings("main", "https://git.example.com/acme/shop.git")
    settings = replace(settings, sources=(source,), notifications=NotificationSettings(forges={"git": forge}))
    [review] = list_open_reviews(settings)
    assert review.url == f"https://git.example.com/{path}"
    others = NotificationSettings(forges={"git": replace(forge, pull_requests=None)})
    assert list_open_reviews(replace(settings, notifications=others)) == []
