"""Volumes: how many, where they are mounted, and on which workloads."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Volume, Workload
from reconciler.model.platform import RESERVED_PATHS, SCRATCH_URI, VOLUMESET_URI

MOST = 15


@register_rule("volume-count", "docs/platform/workload.md#volumes", Kind.WORKLOAD)
def check_volume_count(workload: Workload) -> Iterator[Flaw]:
    """The containers of a workload have at most 15 volumes together.

    The same volume at the same path counts once, even in several containers.
    """
    containers = workload.spec.containers
    if len(containers) == 1 and len(containers[0].volumes) <= MOST:
        return
    mounted: set[tuple[str, str]] = set()
    for index, container in enumerate(containers):
        for step, volume in enumerate(container.volumes):
            mounted.add((volume.uri, _normalize_path(volume.path)))
            if len(mounted) > MOST:
                at = ("spec", "containers", index, "volumes", step)
                message = f"this is one volume more than the {MOST} that a workload may have"
                yield Flaw(at, message, "mount fewer volumes, or split the workload")
                return


@register_rule("mount-reserved", "docs/platform/workload.md#mount-paths", Kind.WORKLOAD)
def check_reserved_paths(workload: Workload) -> Iterator[Flaw]:
    """Nothing is mounted at `/dev`, `/dev/log`, `/tmp`, `/var` or `/var/log`.

    The platform mounts these itself. Folders below them are allowed, such as `/var/lib/orders`.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, volume in enumerate(container.volumes):
            path = _normalize_path(volume.path)
            if path in RESERVED_PATHS:
                below = quote_text(f"{path}/{_make_folder_name(volume.uri)}")
                yield Flaw(
                    ("spec", "containers", index, "volumes", step, "path"),
                    f"{quote_text(path)} is reserved for the platform",
                    f"mount it at another path, or at a folder below, such as {below}",
                )


@register_rule("mount-duplicate", "docs/platform/workload.md#mount-paths", Kind.WORKLOAD)
def check_duplicate_paths(workload: Workload) -> Iterator[Flaw]:
    """A container mounts one volume at a path.

    Of two at the same path only one would be visible. `/a/` and `/a` are the same path.
    """
    for index, container in enumerate(workload.spec.containers):
        if len(container.volumes) < 2:
            continue
        first: dict[str, int] = {}
        pointer = ("spec", "containers", index, "volumes")
        for step, volume in enumerate(container.volumes):
            earlier = first.setdefault(_normalize_path(volume.path), step)
            if earlier != step and volume.path:
                yield Flaw(
                    (*pointer, step, "path"),
                    f"{quote_text(container.volumes[earlier].uri)} is mounted at {quote_text(volume.path)} already",
                    "choose another path for one of them",
                    also=((*pointer, earlier, "path"),),
                )


@register_rule("mount-nested", "docs/platform/workload.md#mount-paths", Kind.WORKLOAD)
def check_nested_mounts(workload: Workload) -> Iterator[Flaw]:
    """No volume is mounted inside another.

    Depending on the order of the mounts, the outer one would hide the inner one.
    """
    for index, container in enumerate(workload.spec.containers):
        if len(container.volumes) < 2:
            continue
        pointer = ("spec", "containers", index, "volumes")
        for step, outer in _list_nested_volumes(container.volumes):
            yield Flaw(
                (*pointer, step, "path"),
                f"this is inside {quote_text(container.volumes[outer].path)}, where another volume is mounted",
                "mount the two side by side",
                also=((*pointer, outer, "path"),),
            )


@register_rule("volumeset-needs-stateful", "docs/platform/workload.md#types", Kind.WORKLOAD)
def check_volumeset_mounts(workload: Workload) -> Iterator[Flaw]:
    """Only a stateful workload mounts volume sets.

    A volume always belongs to one replica, and only replicas of a stateful workload have an identity.
    """
    if workload.spec.type == "stateful":
        return
    for index, container in enumerate(workload.spec.containers):
        for step, volume in enumerate(container.volumes):
            if volume.uri.startswith(VOLUMESET_URI):
                yield Flaw(
                    ("spec", "containers", index, "volumes", step, "uri"),
                    f"a {workload.spec.type} workload cannot mount a volume set",
                    f"make it `type: stateful`, or mount {SCRATCH_URI} for temporary data",
                    also=(("spec", "type"),),
                )


@register_warning("recovery-policy-deprecated", "docs/platform/workload.md#volumes", Kind.WORKLOAD)
def recovery_policy(workload: Workload) -> Iterator[Flaw]:
    """A volume has no `recoveryPolicy`.

    The field is deprecated and has no effect: volumes exist until their volume set is deleted.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, volume in enumerate(container.volumes):
            if volume.recovery_policy:
                at = ("spec", "containers", index, "volumes", step, "recoveryPolicy")
                yield Flaw(at, "`recoveryPolicy` is deprecated and has no effect", "leave it out", on_key=True)


def _normalize_path(path: str) -> str:
    """``/a//b/./c/`` → ``/a/b/c``; "" if it is no absolute path."""
    if "//" in path or "/." in path or path.endswith("/"):
        path = "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else ""
    return path


def _list_nested_volumes(volumes: tuple[Volume, ...]) -> Iterator[tuple[int, int]]:
    """Positions of each volume that is mounted inside another one, and of that one.

    Sorted by path with a trailing slash, the paths inside a path directly follow it.
    """
    paths = sorted(
        (f"{_normalize_path(volume.path)}/", step) for step, volume in enumerate(volumes) if volume.path[:1] == "/"
    )
    top, outer = "", -1
    for path, step in paths:
        if top and path != top and path.startswith(top):
            yield step, outer
        elif path != top:
            top, outer = path, step


def _make_folder_name(uri: str) -> str:
    """A folder name for a mount: ``s3://logs`` → ``logs``."""
    return uri.rpartition("/")[2][:20] or "mount"
