"""Holds a version back until its images are on this host, and pins each version to the digests of its tags."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from reconciler.bugs import internal_error
from reconciler.engines.context import EngineContext
from reconciler.engines.host.decisions.replica import Replica
from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.host.part import LocationPart
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.images.refresh import WatchedTag
from reconciler.engines.images.tags import RegistryClient
from reconciler.engines.workload.deployment import ResolvedImage, ResolvedImages
from reconciler.engines.workload.image_reference import ImageError
from reconciler.engines.workload.spec import ImageFault, Type, WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError, ReconcilerError
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait
from reconciler.times import format_iso_time

RETRY_SECONDS = 30.0
"""Seconds until the images of a version are tried again, where the registry asks for no other time."""


class RunningImages(Protocol):
    """The replicas of a location, as far as they use images."""

    def replicas(self, key: Key) -> Sequence[Replica]:
        """Those of a workload."""

    def images_of(self, key: Key, version: int) -> dict[str, str]:
        """The image by container that replicas of a version run from."""

    def images(self) -> set[str]:
        """The images of all replicas, the ending ones included."""


class ImageGate(LocationPart):
    """Prepares the images of the workloads at the location of ``context`` from the store of ``runtime``.

    Without a store, it holds nothing back. ``registry`` is asked in place of the registries that images name.
    """

    def __init__(
        self,
        context: EngineContext,
        root: Path,
        runtime: Runtime,
        running: RunningImages,
        signals: LocationSignals,
        registry: RegistryClient | None = None,
    ) -> None:
        self._context = context
        self._root = root
        self._runtime = runtime
        self._running = running
        self._registry = registry
        self._clock = context.clock
        self._signals = signals
        self._service: ImageService | None = None
        self._pulls = False
        self._images: dict[Key, WorkloadImages] = {}
        self._ready: set[Key] = set()
        self._errors: dict[Key, ImageFault] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    async def open(self, _records: Sequence[Record]) -> None:
        """Take images from the store of the runtime; in an idle store, images are only removed."""
        # An earlier try to open may have failed halfway, and have been closed.
        for table in (self._images, self._ready, self._errors):
            table.clear()
        site, runtime = self._context, self._runtime
        self._pulls = runtime.image_store is not None
        store = runtime.image_store or runtime.idle_store
        if store is not None:
            settings = site.settings
            context = ImageContext(self._root, settings.org, settings.images, site.secrets, site.clock, Random())
            reload = self._signals.reload
            events = ImageEvents(
                self._pull_moved, self._report_failure, self._running.images, self._report_expiry, reload
            )
            self._service = ImageService(context, store, events, self._registry)

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Follows tags, and removes unused images."""
        return (self._service.run(),) if self._service is not None else ()

    async def close(self) -> None:
        """Stop all preparations; the next daemon begins them again."""
        await cancel_and_wait(self._tasks.values(), "the preparation of images")
        self._tasks.clear()
        if self._service is not None:
            await self._service.close()

    def _report_expiry(self, image: str) -> None:
        key = Key(Kind.LOCATION, "", self._context.location)
        self._signals.report(key, Reason.IMAGE_EXPIRED, f"the image {image} is unused, and was deleted")

    def error(self, key: Key) -> str:
        """Why the images of the newest version are not ready; "" while nothing failed."""
        fault = self._errors.get(key)
        return f"{fault.reason}: {fault.message}" if fault is not None else ""

    def digests(self, key: Key, version: int) -> tuple[str, ...]:
        """The pinned references of a version, in order of its containers; empty before they are known."""
        return tuple(image for _, image in sorted(self._find_pins(key, version).items()))

    def find_resolved(self, key: Key, version: int) -> ResolvedImages | None:
        """What the images of a version mean; None where nothing runs from images."""
        if self._service is None or not self._pulls:
            return None
        pins, error = self._service.find_pins(key, version), self.error(key)
        errors = (error,) if error else ()
        if pins is None or not pins.containers:
            return ResolvedImages(error_messages=errors)
        images = [ResolvedImage(pin.image, pin.pinned.partition("@")[2]) for _, pin in sorted(pins.containers.items())]
        return ResolvedImages(tuple(dict.fromkeys(images)), format_iso_time(pins.resolved), errors)

    def want(self, template: ReplicaTemplate, spec: WorkloadSpec) -> WorkloadSpec:
        """``spec`` with pinned images; pending until they are on this host.

        The digests of versions that still run stay pinned. What runs from the wanted version pins it if the pins were
        lost.
        """
        running = {replica.version for replica in self._running.replicas(spec.key)}
        if self._service is not None and not self._pulls:
            self._service.forget(spec.key, {*running, spec.version})
            return spec
        if (
            self._service is None
            or not any(container.image for container in spec.containers)
            or not _starts_containers(spec)
        ):
            return spec
        containers = {container.name: container.image for container in template.spec.containers}
        images = WorkloadImages(spec.key, spec.version, containers, template.pull_secrets, spec.dynamic_tags)
        if self._images.get(spec.key) != images:
            self._service.adopt(images, self._running.images_of(spec.key, spec.version))
            self._begin(images, {*running, spec.version})
        pinned = self._find_pins(spec.key, spec.version)
        if spec.key not in self._ready and not self._ran_before(spec.key, spec.version, containers):
            fault = self._errors.get(spec.key)
            return msgspec.structs.replace(spec, pending=self._describe_pull(spec.key, containers), image_fault=fault)
        members = (
            msgspec.structs.replace(container, image=pinned.get(container.name, container.image))
            for container in spec.containers
        )
        return msgspec.structs.replace(spec, containers=tuple(members))

    def provide_images(self, key: Key) -> None:
        """Pull the images of a workload again, unless that is under way: one that was here is gone."""
        images = self._images.get(key)
        if images is not None and key in self._ready:
            self._start(images)

    def _pull_moved(self, tag: WatchedTag, digest: str) -> None:
        """Pull what a tag means now; when it is here, a rollout to it begins."""
        images = self._images.get(tag.key)
        if images is not None and tag.key in self._ready and images.version == tag.version:
            message = f"{tag.reference} of {tag.container} is {digest} now"
            self._signals.report(tag.key, Reason.IMAGE_CHANGED, message)
            self._start(images, follow=True)

    def _report_failure(self, key: Key, error: EngineError) -> None:
        """Report that the tags of a workload cannot be followed; what runs goes on."""
        self._report(key, error)

    def retain(self, keys: Collection[Key]) -> None:
        """Forget all workloads but ``keys``: those that ended while no daemon ran. Raises EngineError."""
        if self._service is not None:
            self._service.forget_others(keys)

    def forget(self, key: Key) -> None:
        """Forget a deleted workload. Raises EngineError."""
        self._cancel(key)
        self._images.pop(key, None)
        if self._service is not None:
            self._service.forget(key)

    def _begin(self, images: WorkloadImages, versions: Collection[int]) -> None:
        assert self._service is not None
        self._service.forget(images.key, versions)
        self._images[images.key] = images
        self._start(images)

    def _start(self, images: WorkloadImages, *, follow: bool = False) -> None:
        self._cancel(images.key)
        self._tasks[images.key] = asyncio.create_task(self._prepare(images, follow), name=f"images of {images.key}")

    def _cancel(self, key: Key) -> None:
        self._ready.discard(key)
        self._errors.pop(key, None)
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def _prepare(self, images: WorkloadImages, follow: bool) -> None:
        """Try until the images are here; each new error is an event."""
        assert self._service is not None
        while True:
            try:
                await self._service.ensure(images, follow=follow)
            except Exception as error:  # noqa: BLE001 - a bug with one workload must not take the others down
                wait = self._note(images.key, error)
            else:
                self._ready.add(images.key)
                self._errors.pop(images.key, None)
                self._signals.reload(images.key)
                return
            await self._clock.sleep(wait)

    def _note(self, key: Key, error: Exception) -> float:
        """Record a failure; returns the seconds until the next try."""
        failure = error if isinstance(error, EngineError) else internal_error(error, f"images of {key}")
        final = isinstance(failure, EngineError) and not failure.retry
        final = final or (isinstance(failure, ImageError) and failure.missing)
        fault = ImageFault(str(failure.reason), str(failure), final)
        if fault != self._errors.get(key):
            self._errors[key] = fault
            self._report(key, failure)
            self._signals.reload(key)
        wait = error.wait if isinstance(error, ImageError) else None
        return max(1.0, wait) if wait is not None else RETRY_SECONDS

    def _report(self, key: Key, error: ReconcilerError) -> None:
        if error.reason == Reason.IMAGE_PULL_FAILED:
            self._signals.report(key, Reason.IMAGE_PULL_FAILED, str(error))
        else:
            self._signals.report(key, Reason.WORKLOAD_ERROR, f"{error.reason}: {error}")

    def _describe_pull(self, key: Key, containers: Mapping[str, str]) -> str:
        """``the image of main is being pulled: 34 of 120 MB``, as far as the sizes are known."""
        assert self._service is not None
        progress = self._service.find_progress(key)
        subject = "the image of {} is" if len(containers) == 1 else "the images of {} are"
        text = f"{subject.format(', '.join(containers))} being pulled"
        return f"{text}: {progress}" if progress.total else text

    def _find_pins(self, key: Key, version: int) -> Mapping[str, str]:
        pins = self._service.find_pins(key, version) if self._service is not None and self._pulls else None
        return {name: pin.pinned for name, pin in pins.containers.items()} if pins is not None else {}

    def _ran_before(self, key: Key, version: int, containers: Mapping[str, str]) -> bool:
        """Whether all images of the version were on this host before: its replicas need not wait for another look."""
        pins = self._service.find_pins(key, version) if self._service is not None else None
        pinned = pins.containers if pins is not None else {}
        return all(
            name in pinned and pinned[name].image == image and pinned[name].pulled for name, image in containers.items()
        )


def _starts_containers(spec: WorkloadSpec) -> bool:
    """Whether containers of it start: of a suspended cron workload on demand."""
    return bool(spec.replicas) or spec.type is Type.CRON
