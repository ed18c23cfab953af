"""Parses the url of a source: a path on this machine, or a remote and its protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.settings import SourceSettings

_SCP = re.compile(r"^(?:[^/:@]+@)?[^/:]+:(?!//)")
_HELPER = re.compile(r"^[\w+.-]+::")
_REMOTE = frozenset({"https", "http", "ssh", "git"})


class RepositoryAddress(msgspec.Struct, frozen=True):
    """``path`` for a repository on this machine, otherwise ``url`` with the ``scheme`` for Git."""

    url: str
    scheme: str
    path: Path | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port: only this origin may receive a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_address(url: str) -> RepositoryAddress:
    """Distinguish paths and ``file://`` from ``https``, ``http``, ``ssh``, ``git`` and ``user@host:path``.

    Raises UsageError for other schemes, for git's remote helpers (``ext::…``), and for a password or, with http and
    https, a user in the url: process lists show it, and a token is often written there.
    """
    if _HELPER.match(url):
        raise UsageError(
            f"source url {url.partition('::')[0]}::… names a program to run; use a path, https:// or ssh://"
        )
    if "://" not in url:
        return (
            RepositoryAddress(url, "ssh") if _SCP.match(url) else RepositoryAddress(url, "file", Path(url).expanduser())
        )
    parts = urlsplit(url)
    if parts.scheme == "file":
        return RepositoryAddress(url, "file", Path(unquote(parts.path)))
    if parts.scheme not in _REMOTE or not parts.hostname:
        raise UsageError(
            f"source url {parts.scheme}://… is not understood; use a path, https://, ssh:// or git@host:path"
        )
    if parts.password is not None:
        raise UsageError(
            f"the url of the source at {parts.hostname} holds a password; put it into a file and name that as "
            "credentials.tokenFile"
        )
    if parts.username is not None and parts.scheme in ("https", "http"):
        raise UsageError(
            f"the url of the source at {parts.hostname} holds a user, which lists of processes show; leave it out and "
            "write credentials.username, or, where it is a token, put it into a file and name that as "
            "credentials.tokenFile"
        )
    return RepositoryAddress(url, parts.scheme)


def source_address(settings: SourceSettings) -> RepositoryAddress:
    """The address of a source, as in ``parse_address``. Raises UsageError also if a token would be sent unencrypted."""
    address = parse_address(settings.url)
    credentials = settings.credentials
    if credentials.token_file is not None and address.scheme in ("http", "git") and not credentials.allow_insecure:
        raise UsageError(
            f"source {settings.name}: with {address.scheme}:// its token, and all that is fetched, cross the network "
            "as plain text; use https://, or set credentials.allowInsecure"
        )
    return address


def wanted_ref(settings: SourceSettings) -> str:
    """The full name of the ref that a source follows; for a pinned commit, a ref that never exists."""
    if settings.commit:
        return "refs/reconciler/commit"
    return f"refs/tags/{settings.tag}" if settings.tag else f"refs/heads/{settings.branch or 'main'}"
