"""The client of registries: the digests of tags, and the platforms of images."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from reconciler.engines.images.authorization import Authorization
from reconciler.engines.images.connection import RegistryAnswer, RegistryConnection, RegistryRequest
from reconciler.engines.images.manifests import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    MAX_MANIFEST_BYTES,
    ImageManifest,
    Platform,
    parse_index,
)
from reconciler.engines.images.protocol import BlobStream, ImagePart, RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NO_HEAD = frozenset({405, 501})


class Registry:
    """Sends requests about images by ``connection``.

    A failed request raises ImageError, which names the image and has the message of the registry.
    """

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection
        self._clock = connection.clock
        self._authorization = Authorization(connection)
        self._without_head: set[str] = set()

    async def resolve(
        self, reference: ImageReference, credentials: RegistryCredentials | None, with_body: bool = False
    ) -> ImageManifest:
        """The manifest of the tag of ``reference``, by one request.

        The answer to HEAD has no body, and so no error message; ``with_body`` uses GET.
        """
        method = "GET" if with_body or reference.host in self._without_head else "HEAD"
        answer = await self._ask(method, reference, credentials)
        text = answer.headers.get("docker-content-digest", "")
        if method == "HEAD" and not _DIGEST.fullmatch(text):
            # Such a registry never gets a HEAD request again.
            self._without_head.add(reference.host)
            answer = await self._ask("GET", reference, credentials)
        if answer.body or method == "GET":
            text = _digest_of(reference, answer)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()
        return ImageManifest(text, kind in INDEX_TYPES)

    async def platforms(
        self, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> tuple[Platform, ...]:
        """The platforms of the index that ``reference`` names by its digest."""
        answer = await self._ask("GET", reference, credentials)
        _digest_of(reference, answer)
        try:
            return parse_index(answer.body)
        except ImageError as error:
            raise _add_image_name(reference, error) from None

    def is_named(self, reference: ImageReference) -> bool:
        """Whether the settings name the registry of ``reference``."""
        return self._connection.is_named(reference.host)

    @asynccontextmanager
    async def open(
        self, part: ImagePart, credentials: RegistryCredentials | None, headers: Mapping[str, str]
    ) -> AsyncIterator[BlobStream]:
        """A part of an image as the registry sends it, to a request with ``headers``."""
        began = self._clock.monotonic()
        try:
            async with self._open_part(part, credentials, headers) as stream:
                if stream.status != 401:
                    yield stream
                    return
                refused = RegistryAnswer(stream.host, stream.status, stream.headers)
            if not self._authorization.renew(part.reference, credentials, refused, began):
                raise self._connection.refusal(refused)
            async with self._open_part(part, credentials, headers) as stream:
                yield stream
        except ImageError as error:
            raise _add_image_name(part.reference, error) from None

    @asynccontextmanager
    async def _open_part(
        self, part: ImagePart, credentials: RegistryCredentials | None, headers: Mapping[str, str]
    ) -> AsyncIterator[BlobStream]:
        reference = part.reference
        login = await self._authorization.header(reference, credentials)
        url = self._connection.url(reference.host, f"/v2/{reference.repository}/{part.path}")
        async with self._connection.open(RegistryRequest(part.method, url, {**headers, **login})) as stream:
            yield stream

    async def refusal(self, reference: ImageReference, stream: BlobStream) -> ImageError:
        """The error for an answer that is no success."""
        body = bytearray()
        async for chunk in stream.chunks:
            body += chunk
            if len(body) > MAX_MANIFEST_BYTES:
                break
        answer = RegistryAnswer(stream.host, stream.status, stream.headers, bytes(body))
        return _add_image_name(reference, self._connection.refusal(answer))

    async def check(self, reference: ImageReference) -> None:
        """Raise ImageError if the registry of ``reference`` may not be asked, before somebody else asks it."""
        try:
            await self._connection.check(reference.host)
        except ImageError as error:
            raise _add_image_name(reference, error) from None
        except TimeoutError:
            raise _add_image_name(
                reference, self._connection.unreachable(reference.host, "its name is not resolved")
            ) from None

    def conceal(self, reference: ImageReference, error: ImageError) -> ImageError:
        """The error of a store that could not reach the registry, without its cause unless settings name the host."""
        if self._connection.is_named(reference.host):
            return error
        concealed = _add_image_name(reference, self._connection.unreachable(reference.host, str(error)))
        return ImageError(str(concealed), reason=error.reason, retry=error.retry, wait=error.wait)

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def _ask(
        self, method: str, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> RegistryAnswer:
        began = self._clock.monotonic()
        try:
            answer = await self._send(method, reference, credentials)
            if answer.status == 401 and self._authorization.renew(reference, credentials, answer, began):
                answer = await self._send(method, reference, credentials)
            if answer.status != 200 and not (method == "HEAD" and answer.status in _NO_HEAD):
                raise self._connection.refusal(answer)
        except ImageError as error:
            raise _add_image_name(reference, error) from None
        return answer

    async def _send(
        self, method: str, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> RegistryAnswer:
        path = f"/v2/{reference.repository}/manifests/{reference.digest or reference.tag}"
        headers = await self._authorization.header(reference, credentials) | {"Accept": ", ".join(MANIFEST_TYPES)}
        url = self._connection.url(reference.host, path)
        return await self._connection.send(RegistryRequest(method, url, headers, limit=MAX_MANIFEST_BYTES))


def _digest_of(reference: ImageReference, answer: RegistryAnswer) -> str:
    """The digest of the body of ``answer``, which must be the requested or announced one."""
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    announced = reference.digest or answer.headers.get("docker-content-digest", "")
    if _DIGEST.fullmatch(announced) and announced != digest:
        raise _add_image_name(reference, ImageError(f"{answer.host} sends a manifest with another digest, {digest}"))
    return digest


def _add_image_name(reference: ImageReference, error: ImageError) -> ImageError:
    """``error`` with the image in its message."""
    return ImageError(f"the image {reference}: {error}", reason=error.reason, wait=error.wait, missing=error.missing)
