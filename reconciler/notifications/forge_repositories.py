"""Where commits of sources are shown, remembered so that what waits there ends when the settings have it no longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from reconciler.errors import UsageError
from reconciler.logs import log
from reconciler.notifications.forges.address import ForgeAddress, find_forge, has_source
from reconciler.notifications.message import Message, State
from reconciler.notifications.outbox import decode_message
from reconciler.records.notifications.deliveries import Delivery
from reconciler.records.notifications.repositories import FORMER, PLACE
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.forges import ForgeSettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_NAMED = 5
"""The most commits that a line of the log names."""


class ForgeRepository(msgspec.Struct, frozen=True):
    """The repository of ``source`` at ``forge``, and the settings that it was reached by; it has no secrets.

    ``branch`` is that of the source, ``path`` the one of its manifests. ``environment`` is what its commits are
    deployed to, "" for none; ``is_shared`` says that other sources deploy to the same one.
    """

    forge: str
    source: str
    settings: ForgeSettings
    address: ForgeAddress
    branch: str = ""
    path: str = "."
    environment: str = ""
    is_shared: bool = False

    def is_same(self, other: ForgeRepository | None) -> bool:
        """Whether the statuses of a commit are the same there: at GitLab, a status belongs to a branch, too."""
        if other is None or self.address != other.address:
            return False
        return self.address.type != "gitlab" or self.branch == other.branch

    @property
    def context(self) -> str:
        """The name of the statuses of its commits."""
        return f"{self.settings.context}/{self.source}"


class FormerRepository(msgspec.Struct, frozen=True):
    """A repository that the settings have no longer, ``why`` that is, and the commits that waited there then."""

    repository: ForgeRepository
    why: str
    commits: tuple[str, ...] = ()

    def is_of(self, message: Message) -> bool:
        """Whether ``message`` is the end of what waited here."""
        return message.state is State.SUPERSEDED and message.commit in self.commits


def encode_repository(repository: ForgeRepository | FormerRepository) -> bytes:
    """``repository`` as JSON."""
    return msgspec.json.encode(repository, enc_hook=str)


def decode_repository(raw: bytes) -> ForgeRepository:
    """The inverse of ``encode_repository``."""
    return msgspec.json.decode(raw, type=ForgeRepository, dec_hook=_decode_path)


def _decode_path(_wanted: type, text: Any) -> Path:
    return Path(text)


def list_repositories(
    forge: str, settings: ForgeSettings, sources: Iterable[SourceSettings]
) -> dict[str, ForgeRepository]:
    """Each of ``sources`` at the forge, by name. Raises UsageError for what its settings lack."""
    own = [source for source in sources if has_source(settings, source)]
    addresses = {source.name: _find_address(forge, settings, source) for source in own}
    counts = Counter(addresses.values())
    repositories = {}
    for source in own:
        address = addresses[source.name]
        environment, is_shared = settings.environment, bool(settings.environment) and counts[address] > 1
        if is_shared and address.type == "gitlab":
            # Only the environment tells such deployments of GitLab apart.
            environment, is_shared = f"{environment}/{source.name}", False
        repositories[source.name] = ForgeRepository(
            forge, source.name, settings, address, source.branch, source.path, environment, is_shared
        )
    return repositories


def update_repositories(records: Records, settings: Settings) -> list[FormerRepository]:
    """Remember the repositories of ``settings``; return former ones, at which something may be left to say.

    What waits at a forge that is gone from them is logged. Raises RecordsError.
    """
    forges = settings.notifications.forges if settings.notifications is not None else {}
    repositories: dict[tuple[str, str], ForgeRepository] = {}
    unusable = set()
    for name, forge in forges.items():
        try:
            of_forge = list_repositories(name, forge, settings.sources)
        except UsageError:
            unusable.add(name)  # Nothing is known of it until the settings are mended.
            continue
        repositories |= {(name, source): repository for source, repository in of_forge.items()}
    with records.transaction():
        _drop_done(records, repositories)
        former = [decode_repository(raw) for raw in records.forge_repositories.list(PLACE)]
        for repository in former:
            if repository.forge not in unusable and not repository.is_same(
                repositories.get((repository.forge, repository.source))
            ):
                _leave_repository(records, settings, repository, repositories)
        for repository in set(repositories.values()).difference(former):
            records.forge_repositories.put(PLACE, repository.forge, repository.source, encode_repository(repository))
    return list_former_repositories(records)


def list_former_repositories(records: Records) -> list[FormerRepository]:
    """The repositories that the settings have no longer, and at which something may be left. Raises RecordsError."""
    rows = records.forge_repositories.list(FORMER)
    return [msgspec.json.decode(raw, type=FormerRepository, dec_hook=_decode_path) for raw in rows]


def _drop_done(records: Records, repositories: dict[tuple[str, str], ForgeRepository]) -> None:
    """Forget former repositories that the settings have again, and those at which all has ended."""
    for former in list_former_repositories(records):
        repository = former.repository
        is_again = repository.is_same(repositories.get((repository.forge, repository.source)))
        if is_again or not records.deliveries.has_unfinished(repository.forge, repository.source):
            records.forge_repositories.drop(FORMER, repository.forge, repository.source)


def _leave_repository(
    records: Records,
    settings: Settings,
    repository: ForgeRepository,
    repositories: dict[tuple[str, str], ForgeRepository],
) -> None:
    records.forge_repositories.drop(PLACE, repository.forge, repository.source)
    if any(repository.is_same(other) and repository.context == other.context for other in repositories.values()):
        return  # Another forge of the settings shows the same statuses: it says how the commits end.
    left = [one for one in records.deliveries.list_unfinished(repository.source) if one.channel == repository.forge]
    if settings.notifications is None or repository.forge not in settings.notifications.forges:
        _warn_of_left(repository, left)
        return
    commits = tuple(decode_message(delivery).commit for delivery in left)
    former = FormerRepository(repository, _explain_leaving(settings, repository, repositories), commits)
    records.forge_repositories.put(FORMER, repository.forge, repository.source, encode_repository(former))


def _explain_leaving(
    settings: Settings, repository: ForgeRepository, repositories: dict[tuple[str, str], ForgeRepository]
) -> str:
    if repository.source not in {source.name for source in settings.sources}:
        return f"the source {repository.source} was removed from the settings"
    current = repositories.get((repository.forge, repository.source))
    if current is not None and current.address == repository.address:
        return f"the source {repository.source} has another branch in the settings"
    if current is not None:
        return f"the source {repository.source} has another repository in the settings"
    return f"the source {repository.source} is no longer at this forge in the settings"


def _warn_of_left(repository: ForgeRepository, left: list[Delivery]) -> None:
    """Log what stays as it is, since nobody can say more about it."""
    commits = [decode_message(delivery).commit for delivery in left]
    if not commits:
        return
    more = len(commits) - _MOST_NAMED
    named = ", ".join(commits[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    message = (
        f"the settings have no forge {repository.forge} any more, so {repository.context} stays pending at "
        f"{repository.address.page} on {named}"
    )
    log().warning("notification", channel=repository.forge, message=message)


def _find_address(forge: str, settings: ForgeSettings, source: SourceSettings) -> ForgeAddress:
    address = find_forge(source.url, kind=settings.type, site=settings.url, repository=settings.repository)
    parts = urlsplit(address.api)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK and not settings.allow_insecure:
        raise UsageError(
            f"notifications.forges.{forge}: with http:// the token crosses the network as plain text; use "
            "https://, or set allowInsecure"
        )
    return address
