"""The forges of the settings: for each source that is at one, the repository there, with the login for it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.clock import Clock
from reconciler.errors import UsageError
from reconciler.notifications.channels.secret_files import SecretFile, SecretFiles
from reconciler.notifications.forges.address import ForgeAddress, find_forge, has_source
from reconciler.notifications.forges.bitbucket import Bitbucket
from reconciler.notifications.forges.bitbucket_server import BitbucketServer
from reconciler.notifications.forges.client import PAUSE, SECONDS, ForgeClient
from reconciler.notifications.forges.gitea import Gitea
from reconciler.notifications.forges.github import GitHub
from reconciler.notifications.forges.gitlab import GitLab
from reconciler.notifications.forges.login import GitHubApp, Login, TokenLogin
from reconciler.notifications.forges.values import Forge
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
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class ForgeOptions(NamedTuple):
    """Seconds between two requests to a forge, and those in which it answers one; what reads its secrets."""

    pause: float = PAUSE
    seconds: float = SECONDS
    secrets: SecretFiles = SecretFiles()


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
        self._clients: dict[str, ForgeClient] = {}
        self.forges: dict[str, Forge] = {}
        self.paths: dict[str, str] = {}
        """Source → the path of its manifests in the repository."""
        self.environments: dict[str, str] = {}
        """Source → what its commits are deployed to, "" for none."""
        own = [source for source in sources if has_source(settings, source)]
        addresses = {source.name: self._find_address(source) for source in own}
        shared = Counter(addresses.values())
        for source in own:
            address = addresses[source.name]
            self.paths[source.name] = source.path
            self.forges[source.name] = self._make_forge(address, source)
            self.environments[source.name] = self._choose_environment(source.name, address, shared[address])
        if not self.forges:
            raise UsageError(f"notifications.forges.{name}: no source is at it: name its sources, and its url")

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    def _choose_environment(self, source: str, address: ForgeAddress, sources: int) -> str:
        """That of the settings; one below it at GitLab where several ``sources`` deploy the commits of one repository.

        Only the environment tells such deployments of GitLab apart.
        """
        environment = self.settings.environment
        is_shared = address.type == "gitlab" and sources > 1
        return f"{environment}/{source}" if environment and is_shared else environment

    def _find_address(self, source: SourceSettings) -> ForgeAddress:
        own = self.settings
        address = find_forge(source.url, kind=own.type, site=own.url, repository=own.repository)
        parts = urlsplit(address.api)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK and not own.allow_insecure:
            raise UsageError(
                f"notifications.forges.{self.name}: with http:// the token crosses the network as plain text; use "
                "https://, or set allowInsecure"
            )
        return address

    def _make_forge(self, address: ForgeAddress, source: SourceSettings) -> Forge:
        client = self._clients.get(address.api)
        if client is None:
            client = ForgeClient(
                address.api,
                self._clock,
                self.settings.ca_file,
                pause=self._options.pause,
                seconds=self._options.seconds,
            )
            self._clients[address.api] = client
        login = self._make_login(client, address)
        if address.type == "github":
            return GitHub(client, login, address.path)
        if address.type == "gitlab":
            return GitLab(client, login, address.path, source.branch or "main")
        if address.type == "bitbucket":
            return Bitbucket(client, login, address.path, address.page)
        if address.type == "bitbucket-server":
            return BitbucketServer(client, login, address.path, address.page)
        return Gitea(client, login, address.path)

    def _make_login(self, client: ForgeClient, address: ForgeAddress) -> Login:
        own = self.settings
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
