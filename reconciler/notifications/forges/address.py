"""Where the repository of a source is: the type of its forge, the URL of the API, and its path there."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

import msgspec

from reconciler.errors import UsageError
from reconciler.settings import SourceSettings
from reconciler.settings.forges import ForgeSettings

PUBLIC = {
    "github.com": "github",
    "gitlab.com": "gitlab",
    "codeberg.org": "forgejo",
    "gitea.com": "gitea",
    "bitbucket.org": "bitbucket",
}
"""Host → the type of the forge."""
_ALIASES = {
    "ssh.github.com": "github.com",
    "www.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
_API = {"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1", "forgejo": "/api/v1",
        "bitbucket": "/2.0", "bitbucket-server": "/rest"}  # fmt: skip
_PULLS = {
    "github": "pull",
    "gitlab": "-/merge_requests",
    "gitea": "pulls",
    "forgejo": "pulls",
    "bitbucket": "pull-requests",
    "bitbucket-server": "pull-requests",
}
_PUBLIC_API = {"https://github.com": "https://api.github.com", "https://bitbucket.org": "https://api.bitbucket.org/2.0"}


class ForgeAddress(msgspec.Struct, frozen=True):
    """A repository at a forge: ``api`` is the URL of the API, ``page`` that of the repository for people."""

    type: str
    api: str
    path: str
    page: str


def find_forge(url: str, *, kind: str = "", site: str = "", repository: str = "") -> ForgeAddress:
    """The forge of a source with ``url``; what is given is not derived from it.

    ``kind`` is the type of the forge, ``site`` its URL (``https://git.example.com``), ``repository`` the path of the
    repository there. Raises UsageError if something is missing.
    """
    host, path = _split_remote(url)
    site = site.rstrip("/") or (f"https://{host}" if host else "")
    if not site:
        raise UsageError(f"{url} is on this machine, so it names no forge: name its url and the repository there")
    kind = kind or PUBLIC.get(urlsplit(site).hostname or "", "")
    if not kind:
        raise UsageError(f"the type of the forge at {urlsplit(site).netloc} is not known: name its type")
    if not repository:
        below = urlsplit(site).path.strip("/")
        repository = path.removeprefix(f"{below}/") if below else path
    repository = repository.strip("/").removesuffix(".git")
    if kind == "bitbucket-server" and repository.count("/") > 1:
        # URLs for Git over HTTP have it; those over ssh have not.
        repository = repository.removeprefix("scm/")
    names = repository.split("/")
    few, most = (2, 20) if kind == "gitlab" else (2, 2)
    if not few <= len(names) <= most or any(name in ("", ".", "..") for name in names):
        raise UsageError(
            f"{url} does not show which repository of {urlsplit(site).netloc} it is: name it, as OWNER/NAME"
        )
    api = _PUBLIC_API.get(site, f"{site}{_API[kind]}")
    quoted = quote(repository)
    page = "projects/{}/repos/{}".format(*quoted.split("/")) if kind == "bitbucket-server" else quoted
    return ForgeAddress(kind, api, repository if kind == "gitlab" else quoted, f"{site}/{page}")


def is_at(url: str, forge: ForgeSettings) -> bool:
    """Whether a source with ``url`` is at ``forge`` though that names no sources: no other host gets its token."""
    host, _ = _split_remote(url)
    name = urlsplit(f"https://{host}").hostname or ""
    if forge.url:
        return bool(host) and name == urlsplit(forge.url).hostname
    return bool(PUBLIC.get(name)) and forge.type in ("", PUBLIC[name])


def has_source(forge: ForgeSettings, source: SourceSettings) -> bool:
    """Whether ``source`` has its repository at ``forge``."""
    return source.name in forge.sources or (not forge.sources and is_at(source.url, forge))


def make_pull_url(address: ForgeAddress, number: int) -> str:
    """The URL of the pull request ``number`` for people."""
    return f"{address.page}/{_PULLS[address.type]}/{number}"


def _split_remote(url: str) -> tuple[str, str]:
    """The host of a Git URL, without its port for ssh, and the path there; "" for a path on this machine."""
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme == "file":
            return "", ""
        host = parts.hostname or ""
        is_web = parts.scheme in ("https", "http")
        netloc = parts.netloc.rpartition("@")[2] if is_web else host
        path = unquote(parts.path)
    else:
        before, separator, path = url.partition(":")
        if not separator or "/" in before:
            return "", ""
        host = netloc = before.rpartition("@")[2]
    host = host.lower()
    return _ALIASES.get(host, netloc.lower()), path.strip("/").removesuffix(".git")
