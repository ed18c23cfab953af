"""Random stories of two sources: whoever a rule wants to know is sent each beginning, and an end for each beginning."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest

from reconciler.model.record import Health
from reconciler.notifications.message import Message, State
from reconciler.reasons import Reason
from reconciler.settings.notifications import QuietHoursSettings
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
KEYS = ("workload/shop/api", "workload/shop/web", "workload/depot/db")
TARGETS = ("source/main", "source/edge", "gvc/shop", *KEYS)
CHANNELS = ("main", "edge", "all", "web", "quiet")
TEXTS = ("it exits with 1", "no key `url` in secret/db")
HOUR = 60


class Resource(NamedTuple):
    """A resource as it was applied and observed last."""

    source: str
    is_healthy: bool
    is_tagged: bool


WANTS: dict[str, Callable[[Resource], bool]] = {
    "main": lambda resource: resource.source == "main",
    "edge": lambda resource: resource.source == "edge",
    "web": lambda resource: resource.is_tagged,
    "all": lambda _: True,
    "quiet": lambda _: True,
}
"""Channel → the resources that its rule is about."""


class Story:
    """What happens to resources, operators and the daemon, in the order of ``seed``."""

    def __init__(self, post: Post, seed: int) -> None:
        self.post = post
        self.chance = random.Random(seed)
        self.resources: dict[str, Resource] = {}

    def go_on(self) -> None:
        """One thing happens, and some time passes."""
        key, kind = self.chance.choice(KEYS), self.chance.choice((self.fail, self.fail, self.change, self.operate))
        kind(key)
        self.pass_time(self.chance.choice((0, 1, 3, 8)), self.chance.choice((5, 40, 60)))

    def fail(self, key: str) -> None:
        """A resource is unhealthy; it is applied if it was not."""
        source, is_tagged = self.chance.choice(("main", "edge")), self.chance.random() < 0.5
        self.put(key, self.resources.get(key, Resource(source, True, is_tagged))._replace(is_healthy=False))
        self.post.happen(key, Reason.UNHEALTHY, self.chance.choice(TEXTS))

    def change(self, key: str) -> None:
        """A resource is healthy again, has other tags, moves with its GVC, or is deleted."""
        if key in self.resources:
            self.chance.choice((self.heal, self.tag, self.move, self.delete))(key)

    def heal(self, key: str) -> None:
        """A resource is healthy."""
        if not self.resources[key].is_healthy:
            self.put(key, self.resources[key]._replace(is_healthy=True))
            self.post.happen(key, Reason.HEALTHY)

    def tag(self, key: str) -> None:
        """A resource gets a tag, or loses it."""
        self.put(key, self.resources[key]._replace(is_tagged=not self.resources[key].is_tagged))
        self.post.happen(key, Reason.UPDATED)

    def move(self, key: str) -> None:
        """The GVC of a resource moves to the other source."""
        to = "edge" if self.resources[key].source == "main" else "main"
        members = [one for one in self.resources if one.split("/")[1] == key.split("/")[1]]
        self.resources |= {one: self.resources[one]._replace(source=to) for one in members}
        with self.post.records.transaction():
            self.post.records.applied.adopt(to, members)
            self.post.happen(f"source/{to}", Reason.ADOPTED, location="")

    def delete(self, key: str) -> None:
        """A resource is deleted; its name may be used again."""
        del self.resources[key]
        self.post.records.applied.remove([(key, "local")])
        self.post.happen(key, Reason.DELETED)

    def operate(self, _: str) -> None:
        """The daemon starts again, or an operator mutes or suspends something, or ends all of that."""
        target, number = self.chance.choice(TARGETS), self.chance.randrange(4)
        if number == 0:
            self.post.collector = self.post.new_collector()
            self.post.collector.open()
        elif number == 1:
            until = self.post.clock.now() + self.chance.choice((60, 600, 6_000))
            self.post.records.mutes.put(target, "a migration", "ada", until)
        elif number == 2:
            self.post.records.suspensions.put(target, "maintenance", "ada", None)
        else:
            self.end_holds()

    def end_holds(self) -> None:
        """Nothing is muted or suspended any more."""
        for mute in self.post.records.mutes.all():
            self.post.records.mutes.remove(mute.target)
        for suspension in list(self.post.records.suspensions.all()):
            self.post.records.suspensions.remove(suspension.target)
            self.post.happen(suspension.target, Reason.RESUMED, location="")

    def put(self, key: str, resource: Resource) -> None:
        """Record ``resource``."""
        self.resources[key] = resource
        body = b'{"name":"x","tags":{"team":"web"}}' if resource.is_tagged else b'{"name":"x"}'
        health = Health.HEALTHY if resource.is_healthy else Health.UNHEALTHY
        applied = record(key, "local", source=resource.source, health=health)
        self.post.records.applied.put(msgspec.structs.replace(applied, body=body))

    def pass_time(self, times: int, seconds: float = 60.0) -> None:
        """Let the collector work every few ``seconds``."""
        for _ in range(times):
            self.post.collect(after=seconds)

    def newest(self, channel: str) -> Iterator[Message]:
        """The last message about each thing."""
        return iter({message.id: message for message in self.post.messages(channel)}.values())


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 150))])
def test_each_beginning_and_each_end_arrives(make_post: MakePost, seed: int) -> None:
    rules = (
        rule("main", ("main",), sources=("main",)),
        rule("edge", ("edge",), sources=("edge",)),
        rule("all", ("all",)),
        rule("web", ("web",), tags={"team": "web"}),
        rule("quiet", ("quiet",), sources=("main", "edge"), quiet_hours=QuietHoursSettings("22:00", "23:30", "UTC")),
    )
    post = make_post(notify(*rules, channels=CHANNELS), sources=("main", "edge"))
    post.delivers = True
    story = Story(post, seed)
    for _ in range(60):
        story.go_on()
    story.end_holds()
    story.pass_time(2 * HOUR)
    for channel in CHANNELS:
        unhealthy = {key for key, one in story.resources.items() if not one.is_healthy and WANTS[channel](one)}
        open_now = [message for message in story.newest(channel) if message.state is State.FAILURE]
        named = {resource.key for message in open_now for resource in message.resources}
        assert unhealthy <= named, f"{channel} misses a beginning"
    for key in list(story.resources):
        story.heal(key)
    story.pass_time(2 * HOUR)
    for channel in CHANNELS:
        assert [message.title for message in story.newest(channel) if message.state is State.FAILURE] == []
