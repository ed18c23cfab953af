"""References of images, as manifests have them (docs/platform/workload.md#images)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from reconciler.errors import EngineError
from reconciler.model.image_names import is_allowed, with_registry
from reconciler.printable import escape_text
from reconciler.reasons import Reason

DOCKER_HUB = "docker.io"
"""The registry with several names; requests go to ``DOCKER_HOST``."""
DOCKER_HOST = "registry-1.docker.io"
LOCAL = "localhost"
"""In place of a registry: the image was built or loaded on this host, and is never pulled."""
LONGEST = 1024
"""The length of the longest reference."""
LONGEST_NAME = 255
"""The length of the longest name: registry and repository."""

_LABEL = r"[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?"
_REGISTRY = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::(?P<port>[0-9]{{1,5}}))?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HIGHEST_PORT = 65_535
_OF_ORG = re.compile(r"(?:/|/org/(?P<org>[a-z][-a-z0-9]*))/image/(?P<name>.+)", re.DOTALL)
_HUB_NAMES = frozenset({DOCKER_HUB, f"index.{DOCKER_HUB}", DOCKER_HOST})


class ImageError(EngineError):
    """An image cannot be provided. ``wait`` is the seconds to wait before a retry, None if the registry sets none.

    ``missing``: the registry answers that it does not have the image.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason = Reason.IMAGE_PULL_FAILED,
        retry: bool = True,
        wait: float | None = None,
        missing: bool = False,
    ) -> None:
        super().__init__(message, reason=reason, retry=retry)
        self.wait = wait
        self.missing = missing


class ImageReference(msgspec.Struct, frozen=True, order=True):
    """An image in a registry: a ``tag``, a ``digest`` (``sha256:…``), or both; then the digest counts."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """The image without tag and digest: ``docker.io/library/nginx``."""
        return f"{self.registry}/{self.repository}"

    @property
    def host(self) -> str:
        """The host, and the port if there is one, that serves the registry."""
        return DOCKER_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def is_local(self) -> bool:
        """Whether no registry has the image."""
        return self.registry == LOCAL

    def at(self, digest: str) -> ImageReference:
        """The image with exactly ``digest``."""
        return ImageReference(self.registry, self.repository, digest=digest)

    def __str__(self) -> str:
        return "".join((self.name, self.tag and f":{self.tag}", self.digest and f"@{self.digest}"))


def parse_reference(text: str, org: str, registry: str) -> ImageReference:
    """The image that ``text`` names: in full, or as an image of ``org``, which ``registry`` (``images.registry``) has.

    A name without a registry is one of Docker Hub, on every host. Without a tag and a digest the tag is ``latest``.
    Raises ImageError, reason InvalidImageName.
    """
    if len(text) > LONGEST:
        _refuse_image(text, f"it has {len(text)} characters, and at most {LONGEST} are possible")
    own = _OF_ORG.fullmatch(text)
    if own is None:
        return _parse_full(with_registry(text), text)
    if own["org"] not in (None, org):
        _refuse_image(
            text, f"it belongs to the org {own['org']}: write the name that it has in the registry of that org"
        )
    if not registry:
        _refuse_image(
            text, "no registry of the org is known: set `images.registry`, or write the registry before the name"
        )
    return _parse_full(f"{registry}/{own['name']}", text)


def check_permission(reference: ImageReference, patterns: Sequence[str]) -> None:
    """Raise ImageError, reason ImageNotAllowed, if none of ``patterns`` (``images.allowed``) fits; (): any image."""
    if not is_allowed(reference.name, patterns):
        message = f"the image {reference} is not allowed: no pattern of `images.allowed` in the settings fits it"
        raise ImageError(message, reason=Reason.IMAGE_NOT_ALLOWED, retry=False)


def _parse_full(full: str, text: str) -> ImageReference:
    rest, at, digest = full.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        _refuse_image(text, "after @ there is a digest: sha256: and 64 digits of 0 to 9 and a to f")
    name, tag = rest, ""
    if ":" in rest[rest.rfind("/") + 1 :]:
        name, _, tag = rest.rpartition(":")
        if not _TAG.fullmatch(tag):
            _refuse_image(
                text, "a tag has at most 128 letters, digits, `_`, `-` and `.`, and begins with neither - nor ."
            )
    registry, slash, repository = name.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == LOCAL):
        _refuse_image(text, "write REGISTRY/NAME:TAG, in lower case but for the tag")
    match = _REGISTRY.fullmatch(registry)
    if match is None or int(match["port"] or 0) > _HIGHEST_PORT:
        _refuse_image(
            text, "before the first / there is no name of a registry, such as registry.example or localhost:5000"
        )
    if not _REPOSITORY.fullmatch(repository) or len(name) > LONGEST_NAME:
        _refuse_image(
            text, "the name after the registry has lower-case letters and digits, with single . or _ and - between"
        )
    registry = registry.lower()
    if registry in _HUB_NAMES:
        registry, repository = DOCKER_HUB, repository if "/" in repository else f"library/{repository}"
    return ImageReference(registry, repository, tag or ("" if digest else "latest"), digest)


def _refuse_image(text: str, why: str) -> NoReturn:
    shown = escape_text(text[:80]) + ("…" if len(text) > 80 else "")
    raise ImageError(f"the image `{shown}` is not valid: {why}", reason=Reason.INVALID_IMAGE_NAME, retry=False)
