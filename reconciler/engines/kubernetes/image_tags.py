"""Follows the tags of workloads with supportDynamicTags: a tag that means another image now is a rollout.

A kubelet asks for the image only when a pod starts. So the daemon asks the registries, and notes the answers on the
object that runs the workload: they outlive the daemon, and a first answer restarts nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.images.attempts import PullAttempts
from reconciler.engines.images.credentials import Keychain
from reconciler.engines.images.manifests import host_platform
from reconciler.engines.images.refresh import TagRefresh, WatchedTag
from reconciler.engines.images.tags import TagResolver, make_registry
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.rendering.containers import resolve_image
from reconciler.engines.kubernetes.rendering.names import PREFIX
from reconciler.engines.workload.image_reference import ImageError, ImageReference, parse_reference
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

TAGS = f"{PREFIX}tags"
"""The annotation of the object that runs a workload with what its tags meant last, as JSON."""

Report = Callable[[Key, Reason, str], None]


_encode = msgspec.json.Encoder(order="deterministic").encode


class TagAnswers(msgspec.Struct, frozen=True):
    """The digests by image, and how often one has ``moved`` to another digest; each move is a rollout."""

    moved: int = 0
    digests: Mapping[str, str] = {}

    def encode(self) -> str:
        """The answers as the value of an annotation."""
        return _encode(self).decode()


class ImageTags:
    """The tags of the workloads of a location."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._seen: dict[Key, dict[str, str]] = {}
        self._moved: set[Key] = set()
        self._change = asyncio.Event()
        self._any = asyncio.Event()
        self._refresh: TagRefresh | None = None
        self._watched: dict[Key, tuple[WatchedTag, ...]] = {}

    async def run(self, report: Report) -> None:
        """Ask the registries until cancelled; ``report`` gets events."""
        # The client takes long to import, and most locations follow no tag.
        await self._any.wait()
        clock, images, rng = self._context.clock, self._context.settings.images, random.Random()
        resolver = TagResolver(make_registry(images, clock), PullAttempts(clock, rng), clock, host_platform())
        self._refresh = TagRefresh(resolver, Keychain(self._context.secrets, images.credentials), clock, rng)
        for key, tags in self._watched.items():
            self._refresh.watch(key, tags)
        try:
            await self._refresh.run(partial(self._note_digest, report), partial(_report_error, report))
        finally:
            self._refresh = None
            await resolver.close()

    async def wait_for_moved(self) -> set[Key]:
        """The workloads with a new answer, once there are any."""
        await self._change.wait()
        self._change.clear()
        moved, self._moved = self._moved, set()
        return moved

    def answers_of(self, template: ReplicaTemplate, running: MirroredObject | None) -> TagAnswers:
        """What to note on the object that runs a workload; nothing if its tags are not followed."""
        if not template.desired.dynamic_tags:
            return TagAnswers()
        former = _read_answers(running)
        seen = self._seen.get(template.desired.key, {})
        digests, moved = {}, former.moved
        for image in self._list_tags(template).values():
            past, now = former.digests.get(str(image), ""), seen.get(str(image), "")
            moved += past != now and bool(past and now)
            if past or now:
                digests[str(image)] = now or past
        return TagAnswers(moved, digests)

    def follow(self, template: ReplicaTemplate, answers: TagAnswers) -> None:
        """Follow the tags of a workload that was applied with ``answers``."""
        key, secrets = template.desired.key, template.pull_secrets
        images = self._list_tags(template) if template.desired.dynamic_tags else {}
        version = template.desired.version
        self._watch(
            key,
            tuple(
                WatchedTag(key, version, name, image, answers.digests.get(str(image), ""), secrets)
                for name, image in images.items()
            ),
        )

    def forget(self, key: Key) -> None:
        """Follow no tags of a deleted workload."""
        self._seen.pop(key, None)
        self._watch(key, ())

    def _watch(self, key: Key, tags: tuple[WatchedTag, ...]) -> None:
        self._watched[key] = tags
        if tags:
            self._any.set()
        else:
            del self._watched[key]
        if self._refresh is not None:
            self._refresh.watch(key, tags)

    def _list_tags(self, template: ReplicaTemplate) -> dict[str, ImageReference]:
        """The images by container that a tag names, without those that name a digest."""
        settings = self._context.settings
        images: dict[str, ImageReference] = {}
        for container in template.spec.containers:
            with suppress(ImageError):
                full = resolve_image(container.image, settings.org, settings.images.registry)
                reference = parse_reference(full, "", "")
                if not reference.digest:
                    images[container.name] = reference
        return images

    def _note_digest(self, report: Report, tag: WatchedTag, digest: str) -> None:
        seen = self._seen.setdefault(tag.key, {})
        if tag.digest and seen.get(str(tag.reference)) != digest:
            message = f"{tag.reference} of {tag.container} is {digest} now"
            report(tag.key, Reason.IMAGE_CHANGED, message)
        seen[str(tag.reference)] = digest
        self._moved.add(tag.key)
        self._change.set()


def _report_error(report: Report, key: Key, error: EngineError) -> None:
    report(key, Reason.IMAGE_PULL_FAILED, f"what a tag means is not known: {error}")


def _read_answers(running: MirroredObject | None) -> TagAnswers:
    text = running.annotations.get(TAGS, "") if running is not None else ""
    try:
        return msgspec.json.decode(text, type=TagAnswers) if text else TagAnswers()
    except msgspec.MsgspecError:
        return TagAnswers()
