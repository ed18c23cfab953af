"""Outcomes of runs on their way to a stub of a forge: records in a file, the real outbox, and crashes between steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from reconciler.clock import SystemClock
from reconciler.errors import UsageError
from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.forge_repositories import update_repositories
from reconciler.notifications.forges.channel import ForgeChannel
from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet
from reconciler.notifications.outbox import decode_message
from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.settings import SourceSettings
from reconciler.settings.notifications import ChannelSettings, NotificationSettings
from tests.notifications.forges.setup import make_settings
from tests.notifications.forges.stub_forge import StubForge
from tests.notifications.harness import Post

FORGE = "forge"


class History:
    """The sources ``sources`` of one repository at ``stub``, and what is said there of their commits."""

    def __init__(self, stub: StubForge, state: Path, sources: tuple[str, ...] = ("shop",), **changes: Any) -> None:
        state.mkdir()
        fields = {"repository": "acme/shop", "environment": "staging", "sources": sources, **changes}
        self.stub = stub
        self.forge = make_settings(stub.kind, stub.url, state, **fields)
        self.post = Post(state, NotificationSettings({}, (), forges={FORGE: self.forge}), sources)
        self.channel: ForgeChannel | None = None
        self.start()

    def start(self) -> None:
        """Begin as a daemon does: with the settings as they are."""
        post = self.post
        former = tuple(update_repositories(post.mine, post.settings))
        post.collector = post.new_collector()
        post.collector.open()
        try:
            options = ForgeOptions(pause=0.0, seconds=60.0, former=former)
            self.channel = ForgeChannel(ForgeSet(FORGE, self.forge, post.settings.sources, SystemClock(), options))
        except UsageError:
            self.channel = None

    async def crash(self) -> None:
        """Let a new daemon go on."""
        if self.channel is not None:
            await self.channel.close()
        self.start()

    async def reload(
        self, *sources: SourceSettings, channels: Mapping[str, ChannelSettings] = {}, **forge: Any
    ) -> None:
        """Let the settings have ``sources``, and other values for the ``forge``."""
        self.forge = msgspec.structs.replace(self.forge, sources=tuple(source.name for source in sources))
        self.forge = msgspec.structs.replace(self.forge, **forge)
        self.post.notifications = NotificationSettings(dict(channels), (), forges={FORGE: self.forge})
        self.post.settings = msgspec.structs.replace(
            self.post.settings, sources=sources, notifications=self.post.notifications
        )
        await self.crash()

    def happen(self, outcome: str, commit: str, source: str = "shop", **fields: Any) -> None:
        """A run stands at ``outcome``; messages are made of it."""
        self.post.run(outcome, commit, source=source, **fields)
        self.post.collect(after=60)

    async def apply(self, commit: str, source: str = "shop") -> None:
        """A run begins and ends well, and both arrive."""
        for outcome in ("running", "applied"):
            self.happen(outcome, commit, source)
            await self.deliver()

    async def deliver(self) -> None:
        """Let all arrive. What fails is as a crash: a new daemon knows what is on disk."""
        deliveries = self.post.records.deliveries
        for _ in range(20):
            if (delivery := deliveries.next_waiting(FORGE, self.post.clock.now())) is None:
                return
            await self.send(delivery)
        raise AssertionError("messages are sent again and again")

    async def send(self, delivery: Delivery) -> None:
        """Try to send ``delivery``, once."""
        deliveries, now = self.post.records.deliveries, self.post.clock.now()
        deliveries.begin(delivery.id)
        assert self.channel is not None
        try:
            answer = await self.channel.send(decode_message(delivery), deliveries.find_reference(delivery))
        except SendRefused as error:
            deliveries.end(delivery.id, DeliveryStatus.REFUSED, now, str(error))
        except SendFailed:
            await self.crash()
        else:
            deliveries.end(delivery.id, DeliveryStatus.SENT, now, "", answer)

    def deliveries(self) -> list[Delivery]:
        """All that was to be sent, oldest first."""
        return list(reversed(self.post.records.deliveries.list()))

    def deployments(self) -> list[tuple[str, str]]:
        """The first digit of the commit of each deployment, and its state."""
        field = "sha" if self.stub.kind == "gitlab" else "ref"
        return [(one[field][0], one["states"][-1]) for one in self.stub.deployments.values()]

    async def close(self) -> None:
        """Close all."""
        if self.channel is not None:
            await self.channel.close()
        self.post.close()
