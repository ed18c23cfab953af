"""Images: tags that move, and images that are visibly made for other machines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload

_PARTS = re.compile(r"[-_.+]")
_HINTS = ("arm", "aarch", "ppc64", "s390", "riscv", "mips", "386", "win", "nanoserver", "darwin")
"""Every image that names another platform has one of these; searching for them is cheaper than for the words."""
_WORDS = frozenset(
    {"arm", "armhf", "armel", "arm32", "arm64", "aarch64", "ppc64le", "s390x", "riscv64", "mips64le", "386", "i386"}
    | {f"arm32v{version}" for version in (5, 6, 7)}
    | {f"armv{version}" for version in (5, 6, 7, 8)}
    | {"arm64v8"}
)
_OURS = frozenset({"amd64", "x86", "x64"})
_SYSTEMS = frozenset({"windows", "windowsservercore", "nanoserver", "darwin"})
"""Platforms that never run on Linux."""
_WINDOWS = "mcr.microsoft.com/windows/"


@register_warning("image-dynamic-tag", "docs/platform/workload.md#dynamic-tags", Kind.WORKLOAD)
def dynamic_tags(workload: Workload) -> Iterator[Flaw]:
    """An image names a version, or the workload sets `supportDynamicTags`.

    `latest`, or no tag, which means the same, is the image that was pushed last: replicas that start at different times
    run different programs, a push redeploys nothing, and there is no version to roll back to.
    """
    if workload.spec.support_dynamic_tags:
        return
    for index, container in enumerate(workload.spec.containers):
        image = container.image
        tag = image[image.rfind("/") + 1 :].partition(":")[2]
        if (tag and tag != "latest") or not image or "@" in image:
            continue
        named = "is tagged `latest`" if tag else "has no tag, which means `latest`"
        yield Flaw(
            ("spec", "containers", index, "image"),
            f"{quote_text(image)} {named}: its content changes with every push",
            "name a version or a digest, or set `supportDynamicTags: true`",
            also=(("spec", "supportDynamicTags"),),
        )


@register_warning("image-platform", "docs/platform/workload.md#images", Kind.WORKLOAD)
def check_image_platform(workload: Workload) -> Iterator[Flaw]:
    """An image is for linux/amd64, as far as its name shows.

    Managed locations have only machines of that platform, where the program of another image ends with a format
    error. Your own locations may have other machines: silence the warning there.
    """
    for index, container in enumerate(workload.spec.containers):
        image = container.image
        for hint in _HINTS:
            if hint in image and (word := _find_foreign_platform(image)):
                yield Flaw(
                    ("spec", "containers", index, "image"),
                    f"{quote_text(image)} is not for linux/amd64: its name has {quote_text(word)}",
                    "use the image for linux/amd64",
                )
                break


def _find_foreign_platform(image: str) -> str:
    """The word of ``image`` that names a platform other than linux/amd64: a part of its tag, or its first folder."""
    if image.startswith(_WINDOWS):
        return "windows"
    repository, _, tag = image.partition("@")[0].rpartition(":")
    if "/" in tag or not repository:
        repository, tag = image.partition("@")[0], ""
    folders = repository.split("/")[:-1]
    if folders and ("." in folders[0] or ":" in folders[0]):
        del folders[0]
    words = _PARTS.split(tag)
    other = _SYSTEMS if _OURS.intersection(words) else _SYSTEMS | _WORDS
    return next((word for word in words if word in other), folders[0] if folders and folders[0] in _WORDS else "")
