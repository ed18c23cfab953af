"""Follows the tags of workloads with ``supportDynamicTags``: a tag that moved is reported within five minutes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.images.credentials import Keychain
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.tags import TagResolver
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.errors import EngineError, ReconcilerError
from reconciler.model.key import Key

TICK_SECONDS = 10.0
"""Seconds between two checks for due requests."""
SHORTEST, LONGEST = 180.0, 240.0
"""Seconds between two requests for a tag, chosen at random. With two ticks and a slow answer, this can be 300 s."""
FIRST = 30.0
"""Seconds until the first request of this process for a tag: the last one of an earlier process may be long ago."""


class WatchedTag(msgspec.Struct, frozen=True):
    """A tag that a container of a version has, and the digest that the version runs."""

    key: Key
    version: int
    container: str
    reference: ImageReference
    digest: str
    secrets: tuple[Key, ...] = ()


OnMoved = Callable[[WatchedTag, str], None]
"""Called with a moved tag and its new digest; after each request, as long as the tag is watched with another digest."""
OnError = Callable[[Key, EngineError], None]
"""Called for a workload whose tag cannot be resolved, once for repeated equal errors; its replicas stay."""


class _Turn(NamedTuple):
    """When the next request is due, and the time of the last answer that was reported."""

    due: float
    seen: float


class TagRefresh:
    """Resolves each watched tag once per interval, even if many workloads have it."""

    def __init__(self, resolver: TagResolver, keychain: Keychain, clock: Clock, rng: random.Random) -> None:
        self._resolver = resolver
        self._keychain = keychain
        self._clock = clock
        self._rng = rng
        self._watched: dict[Key, tuple[WatchedTag, ...]] = {}
        self._turns: dict[ImageReference, _Turn] = {}
        self._errors: dict[tuple[ImageReference, Key], str] = {}
        self._any = asyncio.Event()

    def watch(self, key: Key, tags: Sequence[WatchedTag]) -> None:
        """Follow ``tags`` and no others of the workload."""
        if tags:
            self._watched[key] = tuple(tags)
            self._any.set()
        else:
            self._watched.pop(key, None)

    async def run(self, on_moved: OnMoved, on_error: OnError) -> None:
        """Resolve tags until cancelled."""
        while True:
            if not self._watched:
                self._any.clear()
                await self._any.wait()
            await self._clock.sleep(TICK_SECONDS)
            with suppress(ReconcilerError), contain_bugs("refresh of image tags"):
                await self._refresh(on_moved, on_error)

    async def _refresh(self, on_moved: OnMoved, on_error: OnError) -> None:
        by_reference: dict[ImageReference, list[WatchedTag]] = {}
        for tags in self._watched.values():
            for tag in tags:
                by_reference.setdefault(tag.reference, []).append(tag)
        self._turns = {reference: turn for reference, turn in self._turns.items() if reference in by_reference}
        asking = {(reference, tag.key) for reference, tags in by_reference.items() for tag in tags}
        self._errors = {pair: error for pair, error in self._errors.items() if pair in asking}
        due = [reference for reference, tags in by_reference.items() if self._is_due(reference, tags, on_moved)]
        await asyncio.gather(*(self._ask(reference, by_reference[reference], on_error) for reference in due))

    def _is_due(self, reference: ImageReference, tags: list[WatchedTag], on_moved: OnMoved) -> bool:
        """Whether a request is due. An answer to another request counts too: it is reported, and a new turn begins."""
        now, latest, turn = self._clock.monotonic(), self._resolver.latest(reference), self._turns.get(reference)
        if latest is not None and (turn is None or latest.at > turn.seen):
            turn = _Turn(latest.at + self._interval(), latest.at)
            for tag in tags:
                if tag.digest != latest.manifest.digest:
                    with suppress(ReconcilerError), contain_bugs(f"moved tag of {tag.key}"):
                        on_moved(tag, latest.manifest.digest)
        turn = turn or _Turn(now + self._rng.uniform(0.0, FIRST), -1.0)
        is_due = turn.due <= now
        self._turns[reference] = _Turn(now + self._interval(), turn.seen) if is_due else turn
        return is_due

    def _interval(self) -> float:
        return self._rng.uniform(SHORTEST, LONGEST)

    async def _ask(self, reference: ImageReference, tags: list[WatchedTag], on_error: OnError) -> None:
        """Use the login of the first workload that has one; the answer is for all workloads.

        A workload whose secrets cannot be used gets its own error, and the others are followed.
        """
        with contain_bugs(f"refresh of {reference}"):
            logins, refused = self._logins(reference, tags)
            errors: dict[Key, EngineError] = {}
            if logins:
                try:
                    await self._resolver.resolve(reference, next(filter(None, logins), None))
                except EngineError as error:
                    self._delay(reference, error)
                    errors = {tag.key: error for tag in tags}
            self._report(reference, tags, errors | refused, on_error)

    def _logins(
        self, reference: ImageReference, tags: list[WatchedTag]
    ) -> tuple[list[RegistryCredentials | None], dict[Key, EngineError]]:
        """The logins that can be used, None for an anonymous one, and the errors of the other workloads."""
        logins: list[RegistryCredentials | None] = []
        refused: dict[Key, EngineError] = {}
        for tag in tags:
            try:
                logins.append(self._keychain.find(reference, tag.secrets))
            except EngineError as error:
                refused[tag.key] = error
        return logins, refused

    def _delay(self, reference: ImageReference, error: EngineError) -> None:
        """Wait as long as the registry asks for."""
        wait = error.wait or 0.0 if isinstance(error, ImageError) else 0.0
        turn = self._turns[reference]
        self._turns[reference] = turn._replace(due=max(turn.due, self._clock.monotonic() + wait))

    def _report(
        self, reference: ImageReference, tags: list[WatchedTag], errors: dict[Key, EngineError], on_error: OnError
    ) -> None:
        """Report the errors that differ from the last ones of their workloads."""
        for key in sorted({tag.key for tag in tags}):
            error = errors.get(key)
            if error is None:
                self._errors.pop((reference, key), None)
            elif self._errors.get((reference, key)) != str(error):
                self._errors[reference, key] = str(error)
                with suppress(ReconcilerError), contain_bugs(f"error of the image of {key}"):
                    on_error(key, error)
