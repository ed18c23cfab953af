"""The forge of a source, and its repository there, by the URL of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.notifications.forges.address import ForgeAddress, find_forge, is_at
from reconciler.settings.forges import ForgeSettings

GITHUB = ForgeAddress("github", "https://api.github.com", "acme/shop", "https://github.com/acme/shop")


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/shop.git",
        "https://github.com/acme/shop",
        "https://GitHub.com/acme/shop/",
        "ssh://git@github.com/acme/shop.git",
        "ssh://git@ssh.github.com:443/acme/shop.git",
        "git@github.com:acme/shop.git",
        "github.com:/acme/shop",
    ],
)
def test_a_repository_at_github_is_found_by_any_of_its_urls(url: str) -> None:
    assert find_forge(url) == GITHUB


@pytest.mark.parametrize(
    ("url", "options", "api", "path"),
    [
        ("https://gitlab.com/acme/team/shop.git", {}, "https://gitlab.com/api/v4", "acme/team/shop"),
        ("https://codeberg.org/acme/shop", {}, "https://codeberg.org/api/v1", "acme/shop"),
        ("git@bitbucket.org:acme/shop.git", {}, "https://api.bitbucket.org/2.0", "acme/shop"),
        ("https://git.a.org:8443/acme/shop", {"kind": "gitea"}, "https://git.a.org:8443/api/v1", "acme/shop"),
        ("ssh://git@git.a.org:2222/acme/shop", {"kind": "gitea"}, "https://git.a.org/api/v1", "acme/shop"),
        ("https://git.a.org/acme/shop", {"kind": "github"}, "https://git.a.org/api/v3", "acme/shop"),
        (
            "https://a.org/git/acme/shop.git",
            {"kind": "forgejo", "site": "https://a.org/git/"},
            "https://a.org/git/api/v1",
            "acme/shop",
        ),
        (
            "/srv/git/shop.git",
            {"kind": "gitea", "site": "https://a.org", "repository": "acme/shop"},
            "https://a.org/api/v1",
            "acme/shop",
        ),
        ("https://git.a.org/scm/PRJ/shop.git", {"kind": "bitbucket-server"}, "https://git.a.org/rest", "PRJ/shop"),
        ("ssh://git@git.a.org:7999/scm/shop.git", {"kind": "bitbucket-server"}, "https://git.a.org/rest", "scm/shop"),
        (
            "https://a.org/bitbucket/scm/~ann/shop.git",
            {"kind": "bitbucket-server", "site": "https://a.org/bitbucket"},
            "https://a.org/bitbucket/rest",
            "~ann/shop",
        ),
        ("https://git.a.org/a%20b/shop", {"kind": "gitea"}, "https://git.a.org/api/v1", "a%20b/shop"),
    ],
)
def test_a_repository_is_found_by_url_and_settings(url: str, options: dict[str, str], api: str, path: str) -> None:
    found = find_forge(url, **options)
    assert (found.api, found.path) == (api, path)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("/srv/git/shop.git", {}, "on this machine"),
        ("file:///srv/git/shop.git", {"kind": "gitea"}, "on this machine"),
        ("https://git.a.org/acme/shop", {}, "type of the forge at git.a.org is not known"),
        ("https://github.com/acme", {}, "does not show which repository"),
        ("https://github.com/acme/shop/more", {}, "does not show which repository"),
        ("https://github.com/acme/..", {}, "does not show which repository"),
    ],
)
def test_what_is_missing_is_named(url: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_forge(url, **options)


@pytest.mark.parametrize(
    ("url", "forge", "expected"),
    [
        ("https://github.com/acme/shop", ForgeSettings(), True),
        ("https://github.com/acme/shop", ForgeSettings(type="github"), True),
        ("https://gitlab.com/acme/shop", ForgeSettings(type="github"), False),
        ("https://git.a.org/acme/shop", ForgeSettings(type="github"), False),
        ("https://git.a.org:8443/acme/shop", ForgeSettings(url="https://git.a.org:8443"), True),
        ("git@git.a.org:acme/shop", ForgeSettings(url="https://git.a.org"), True),
        ("https://github.com/acme/shop", ForgeSettings(type="gitea", url="https://git.a.org"), False),
        (str(Path("/srv/git/shop.git")), ForgeSettings(type="gitea", url="https://git.a.org"), False),
    ],
)
def test_no_other_host_gets_the_token_of_a_forge(url: str, forge: ForgeSettings, expected: bool) -> None:
    assert is_at(url, forge) is expected
