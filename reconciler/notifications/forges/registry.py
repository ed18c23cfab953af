"""The forges of the settings: for each source that is at one, the repository there, with the login for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.clock import Clock
from reconciler.errors import UsageError
from reconciler.notifications.channels.secret_files import SecretFile, SecretFiles
from reconciler.notifications.forge_repositories import ForgeRepository, FormerRepository, list_repositories
from reconciler.notifications.forges.bitbucket import Bitbucket
from reconciler.notifications.forges.bitbucket_server import BitbucketServer
from reconciler.notifications.forges.client import PAUSE, SECONDS, ForgeClient
from reconciler.notifications.forges.gitea import Gitea
from reconciler.notifications.forges.github import GitHub
from reconciler.notifications.forges.gitlab import GitLab
from reconciler.notifications.forges.login import GitHubApp, Login, TokenLogin
from reconciler.notifications.forges.values import Forge
from reconciler.notifications.message import Message
from reconciler.settings import SourceSettings
from reconciler.settings.forges import ForgeSettings

_FORMS = {
    "github": "github",
    "gitlab": "private",
    "gitea": "token",
    "forgejo": "token",
    "bitbucket": "bearer",
    "bitbucket-server": "bearer",
}


class ForgeOptions(NamedTuple):
    """Seconds between two requests to a forge, and those in which it answers one; what reads its secrets.

    ``former`` are repositories that the settings have no longer, and at which something is left to say.
    """

    pause: float = PAUSE
    seconds: float = SECONDS
    secrets: SecretFiles = SecretFiles()
    former: Sequence[FormerRepository] = ()


DEFAULT_OPTIONS = ForgeOptions()


class ForgeSet:
    """The repositories of the sources at one forge of the settings, which share one client and its pace."""

    def __init__(
        self,
        name: str,
        settings: ForgeSettings,
        sources: tuple[SourceSettings, ...],
        clock: Clock,
        options: ForgeOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Raises UsageError for what the settings lack."""
        self.name = name
        self.settings = settings
        self._clock = clock
        self._options = options
        self._clients: dict[tuple[str, Path | None], ForgeClient] = {}
        self.repositories = list_repositories(name, settings, sources)
        """Source → its repository."""
        self.forges = {source: self._make_forge(repository) for source, repository in self.repositories.items()}
        self._former = {
            former.repository.source: (former, self._make_forge(former.repository))
            for former in options.former
            if former.repository.forge == name
        }
        if not self.forges and not self._former:
            raise UsageError(f"notifications.forges.{name}: no source is at it: name its sources, and its url")

    def get_former(self, source: str) -> Forge:
        """The repository that ``source`` had."""
        return self._former[source][1]

    def find(self, message: Message) -> tuple[ForgeRepository, Forge] | None:
        """Where ``message`` is shown, None if that is nowhere: where the source is, or was when its commit waited."""
        source = message.source
        if source in self._former:
            former, forge = self._former[source]
            if source not in self.repositories or former.is_of(message):
                return former.repository, forge
        return (self.repositories[source], self.forges[source]) if source in self.repositories else None

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    def _make_forge(self, repository: ForgeRepository) -> Forge:
        address, ca_file = repository.address, repository.settings.ca_file
        client = self._clients.get((address.api, ca_file))
        if client is None:
            pause, seconds = self._options.pause, self._options.seconds
            client = ForgeClient(address.api, self._clock, ca_file, pause=pause, seconds=seconds)
            self._clients[address.api, ca_file] = client
        login = self._make_login(client, repository)
        if address.type == "github":
            return GitHub(client, login, address.path)
        if address.type == "gitlab":
            return GitLab(client, login, address.path, repository.branch or "main")
        if address.type == "bitbucket":
            return Bitbucket(client, login, address.path, address.page)
        if address.type == "bitbucket-server":
            return BitbucketServer(client, login, address.path, address.page)
        return Gitea(client, login, address.path)

    def _make_login(self, client: ForgeClient, repository: ForgeRepository) -> Login:
        own, address = repository.settings, repository.address
        if own.app is not None and address.type == "github":
            key = SecretFile(own.app.key_file, self._options.secrets)
            app = GitHubApp(client, own.app.id, key, address.path, own.app.installation)
            if own.environment:
                app.permissions["deployments"] = "write"
            if own.pull_requests is None:
                del app.permissions["pull_requests"]
            return app
        if own.token_file is None:
            raise UsageError(f"notifications.forges.{self.name}: name the file with the token as tokenFile")
        return TokenLogin(SecretFile(own.token_file, self._options.secrets), _FORMS[address.type], own.username)
