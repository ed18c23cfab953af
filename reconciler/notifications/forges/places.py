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
from reconciler.records.notifications.places import FORMER, PLACE
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.forges import ForgeSettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_NAMED = 5
"""The most commits that a line of the log names."""


class Place(msgspec.Struct, frozen=True):
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

    @property
    def context(self) -> str:
        """The name of the statuses of its commits."""
        return f"{self.settings.context}/{self.source}"


class FormerPlace(msgspec.Struct, frozen=True):
    """A place that the settings have no longer, ``why`` that is, and the commits that waited there then."""

    place: Place
    why: str
    commits: tuple[str, ...] = ()

    def is_of(self, message: Message) -> bool:
        """Whether ``message`` is the end of what waited here."""
        return message.state is State.SUPERSEDED and message.commit in self.commits


def encode_place(place: Place | FormerPlace) -> bytes:
    """``place`` as JSON."""
    return msgspec.json.encode(place, enc_hook=str)


def decode_place(raw: bytes) -> Place:
    """The inverse of ``encode_place``."""
    return msgspec.json.decode(raw, type=Place, dec_hook=_decode_path)


def _decode_path(_wanted: type, text: Any) -> Path:
    return Path(text)


def make_places(forge: str, settings: ForgeSettings, sources: Iterable[SourceSettings]) -> dict[str, Place]:
    """Each of ``sources`` at the forge, by name. Raises UsageError for what its settings lack."""
    own = [source for source in sources if has_source(settings, source)]
    addresses = {source.name: _find_address(forge, settings, source) for source in own}
    counts = Counter(addresses.values())
    places = {}
    for source in own:
        address = addresses[source.name]
        environment, is_shared = settings.environment, bool(settings.environment) and counts[address] > 1
        if is_shared and address.type == "gitlab":
            # Only the environment tells such deployments of GitLab apart.
            environment, is_shared = f"{environment}/{source.name}", False
        places[source.name] = Place(
            forge, source.name, settings, address, source.branch, source.path, environment, is_shared
        )
    return places


def update_places(records: Records, settings: Settings) -> list[FormerPlace]:
    """Remember the places of ``settings``; return those that they have no longer, and at which something may be left.

    What waits at a forge that is gone from them is logged. Raises RecordsError.
    """
    forges = settings.notifications.forges if settings.notifications is not None else {}
    places: dict[tuple[str, str], Place] = {}
    unusable = set()
    for name, forge in forges.items():
        try:
            made = make_places(name, forge, settings.sources)
        except UsageError:
            unusable.add(name)  # Nothing is known of it until the settings are mended.
            continue
        places |= {(name, source): place for source, place in made.items()}
    with records.transaction():
        _drop_done(records, places)
        known = [decode_place(raw) for raw in records.places.list(PLACE)]
        for place in known:
            current = places.get((place.forge, place.source))
            if place.forge not in unusable and (current is None or current.address != place.address):
                _leave_place(records, settings, place, places)
        for place in set(places.values()).difference(known):
            records.places.put(PLACE, place.forge, place.source, encode_place(place))
    return list_former_places(records)


def list_former_places(records: Records) -> list[FormerPlace]:
    """The places that the settings have no longer, and at which something may be left. Raises RecordsError."""
    rows = records.places.list(FORMER)
    return [msgspec.json.decode(raw, type=FormerPlace, dec_hook=_decode_path) for raw in rows]


def _drop_done(records: Records, places: dict[tuple[str, str], Place]) -> None:
    """Forget former places that the settings have again, and those at which all has ended."""
    for former in list_former_places(records):
        place = former.place
        current = places.get((place.forge, place.source))
        is_again = current is not None and current.address == place.address
        if is_again or not records.deliveries.has_unfinished(place.forge, place.source):
            records.places.drop(FORMER, place.forge, place.source)


def _leave_place(records: Records, settings: Settings, place: Place, places: dict[tuple[str, str], Place]) -> None:
    records.places.drop(PLACE, place.forge, place.source)
    shown = {(other.address, other.context) for other in places.values()}
    if (place.address, place.context) in shown:
        return  # Another forge of the settings shows the same statuses: it says how the commits end.
    left = [one for one in records.deliveries.list_unfinished(place.source) if one.channel == place.forge]
    if settings.notifications is None or place.forge not in settings.notifications.forges:
        _warn_of_left(place, left)
        return
    commits = tuple(decode_message(delivery).commit for delivery in left)
    former = FormerPlace(place, _explain_leaving(settings, place, places), commits)
    records.places.put(FORMER, place.forge, place.source, encode_place(former))


def _explain_leaving(settings: Settings, place: Place, places: dict[tuple[str, str], Place]) -> str:
    if place.source not in {source.name for source in settings.sources}:
        return f"the source {place.source} was removed from the settings"
    if (place.forge, place.source) in places:
        return f"the source {place.source} has another repository in the settings"
    return f"the source {place.source} is no longer at this forge in the settings"


def _warn_of_left(place: Place, left: list[Delivery]) -> None:
    """Log what stays as it is, since nobody can say more about it."""
    commits = [decode_message(delivery).commit for delivery in left]
    if not commits:
        return
    more = len(commits) - _MOST_NAMED
    named = ", ".join(commits[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    message = (
        f"the settings have no forge {place.forge} any more, so {place.context} stays pending at "
        f"{place.address.page} on {named}"
    )
    log().warning("notification", channel=place.forge, message=message)


def _find_address(forge: str, settings: ForgeSettings, source: SourceSettings) -> ForgeAddress:
    address = find_forge(source.url, kind=settings.type, site=settings.url, repository=settings.repository)
    parts = urlsplit(address.api)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK and not settings.allow_insecure:
        raise UsageError(
            f"notifications.forges.{forge}: with http:// the token crosses the network as plain text; use "
            "https://, or set allowInsecure"
        )
    return address
