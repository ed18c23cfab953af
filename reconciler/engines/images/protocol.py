"""Shared types of this package: credentials, parts of images, answers, and the protocol of image stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from reconciler.engines.workload.image_reference import ImageError, ImageReference


class RegistryCredentials(msgspec.Struct, frozen=True):
    """The login at a registry: a user and a password, or an identity token. It never shows itself."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return "Credentials(***)"


class ImagePart(msgspec.Struct, frozen=True):
    """A manifest or a blob of an image, by its ``path`` below the repository: ``blobs/sha256:…``."""

    method: str
    reference: ImageReference
    path: str


class BlobStream(msgspec.Struct, frozen=True):
    """The answer of ``host``, with a body that is read as it comes; ``chunks`` raises ImageError.

    Names of ``headers`` are in lower case.
    """

    host: str
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class ImageSource(Protocol):
    """A client of registries; its methods raise ImageError, which names the image."""

    def open(
        self, part: ImagePart, credentials: RegistryCredentials | None, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[BlobStream]:
        """A part of an image as the registry sends it."""

    async def refusal(self, reference: ImageReference, stream: BlobStream) -> ImageError:
        """The error for an answer that is no success."""


class ImageInfo(msgspec.Struct, frozen=True):
    """An image in a store: all its names but claims, and its size in bytes; platform and digest are "" in a list."""

    id: str
    references: tuple[str, ...]
    os: str = ""
    architecture: str = ""
    size: int = 0
    digest: str = ""


class ImageStore(Protocol):
    """Holds images on this host, which others use too. References are full, with a digest.

    A claim is a name of the image that only this location has. All methods raise ImageError.
    """

    owner: str
    """Distinguishes this location from all others that use the same store."""

    def has_own_rules(self, reference: ImageReference) -> bool:
        """Whether the operator has configured the store itself for the registry of ``reference``."""

    async def pull(self, reference: str, credentials: RegistryCredentials | None, served: str = "") -> None:
        """Pull the image; cancelling it stops the pull and leaves nothing.

        ``served`` is the name under which the daemon serves it: then the store asks nobody else.
        """

    async def inspect(self, reference: str) -> ImageInfo | None:
        """The image under ``reference``, None if there is none."""

    async def list(self) -> list[ImageInfo]:
        """All images."""

    async def claim(self, reference: str) -> None:
        """Retain the image if others remove theirs; the error is ``missing`` if it is no longer here."""

    async def release(self, reference: str) -> bool:
        """End the claim. The image is removed unless it has other names; False if a container uses it."""

    async def release_others(self, references: Collection[str]) -> None:
        """End all claims of this location except those on ``references``: claims whose record was lost."""

    async def remove(self, reference: str, ours: Collection[str]) -> bool:
        """Remove an image that was pulled here and released, unless it has other names than ``ours``.

        False if a container uses it.
        """
