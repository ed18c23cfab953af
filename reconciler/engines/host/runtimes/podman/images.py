"""The images in Podman's storage, for one location: pulled, claimed by a name of their own, released and removed."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx2
import msgspec

from reconciler.engines.host.runtimes.podman.api.answers import PodmanError, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest, encode_segment
from reconciler.engines.host.runtimes.podman.registry_config import has_own_rules
from reconciler.engines.images.protocol import ImageInfo, RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.foreign_words import strip_variation
from reconciler.printable import escape_text
from reconciler.reasons import Reason

PULL_SECONDS = 1800.0
"""Seconds in which a pull must end: one that hangs would keep others waiting."""
_ANSWER_BYTES = 1 << 20
_WORDS = 400
_IN_USE = 409
_WRONG_PLATFORM = "no image found in"
_SERVED = re.compile(r"127\.0\.0\.1:[0-9]+/(?P<owner>[^/]+)/[0-9a-f]{32}@sha256:[0-9a-f]{64}")
"""A name under which a daemon serves an image."""
_DIGEST_TAG = re.compile(r":sha256-([0-9a-f]{64})$")
"""The tag of an image that was served: Podman gives names with digests to nothing but what it pulls by that name."""
_NO_MANIFEST = re.compile(r"(?:initializing source|reading manifest).*(?:unknown|not found|404)", re.IGNORECASE)
"""In the words of Podman if the registry answers that it has no such manifest."""


class _Pascal(msgspec.Struct, frozen=True, rename="pascal"):
    """Fields are named as in Go."""


class _Listed(_Pascal, frozen=True):
    id: str
    names: list[str] | None = None
    repo_tags: list[str] | None = None
    size: int = 0

    @property
    def all_names(self) -> list[str]:
        return self.names or self.repo_tags or []


_AllImages = list[_Listed]


class _Inspected(_Pascal, frozen=True):
    id: str
    digest: str = ""
    architecture: str = ""
    os: str = ""
    size: int = 0
    repo_tags: list[str] | None = None
    repo_digests: list[str] | None = None


class _Pulled(msgspec.Struct, frozen=True):
    error: str = ""
    id: str = ""


class PodmanImages:
    """Images in Podman's storage (see ImageStore for the methods).

    ``owner`` distinguishes the location from all others that use the same storage; its claims are names of images.
    Registries in ``insecure`` are reached without TLS. ``transport`` replaces the socket in tests.
    """

    def __init__(
        self,
        socket: Path,
        owner: str,
        insecure: Collection[str] = (),
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.owner = f"reconciler-{owner}"
        self._socket = socket
        self._claims = f"localhost/reconciler-{owner}"
        self._insecure = frozenset(insecure)
        self._transport = transport
        self._made: PodmanClient | None = None

    async def close(self) -> None:
        """Close the connections, which pulls have for themselves."""
        client, self._made = self._made, None
        if client is not None:
            await client.close()

    def has_own_rules(self, reference: ImageReference) -> bool:
        """Whether Podman's configuration has rules for the registry."""
        return has_own_rules(reference.name)

    async def pull(self, reference: str, credentials: RegistryCredentials | None, served: str = "") -> None:
        """Pull the image; cancelling it stops the pull and leaves nothing."""
        try:
            if served:
                await self._pull(served, None, with_tls=False)
                await self._rename(served, reference)
            else:
                host = reference.partition("/")[0]
                await self._pull(reference, credentials, with_tls=host not in self._insecure)
        except ImageError as error:
            message = name_image(str(error), served, reference) if served else str(error)
            raise ImageError(message, reason=error.reason, retry=error.retry, missing=error.missing) from None

    async def _rename(self, served: str, reference: str) -> None:
        """Give the image that was pulled as ``served`` the name ``reference``."""
        name, _, digest = reference.partition("@")
        query = {"repo": name, "tag": digest.replace(":", "-")}
        with _add_subject(f"the image {reference}"):
            await self._client.send(PodmanRequest("POST", f"images/{encode_segment(served)}/tag", query), safe=True)
        await self._untag(served, reference)

    async def _pull(self, reference: str, credentials: RegistryCredentials | None, *, with_tls: bool) -> None:
        query = {"reference": reference, "policy": "missing", "quiet": "true"}
        if not with_tls:
            query["tlsVerify"] = "false"
        request = PodmanRequest("POST", "images/pull", query, headers=_make_login_header(credentials))
        answer = bytearray()
        try:
            with _add_subject(f"the image {reference}"):
                async with asyncio.timeout(PULL_SECONDS), self._client.stream(request) as parts:
                    async for part in parts:
                        # Only the last line has the result, and what comes before has no bound.
                        answer = (answer + part)[-_ANSWER_BYTES:]
        except TimeoutError:
            raise ImageError(f"the image {reference} was not pulled within {PULL_SECONDS / 60:.0f} minutes") from None
        _check_pulled(reference, bytes(answer))

    async def inspect(self, reference: str) -> ImageInfo | None:
        """The image under ``reference``, None if there is none."""
        with _add_subject(f"the image {reference}"):
            try:
                inspected = decode_answer(
                    await self._client.get(f"images/{encode_segment(reference)}/json"), _Inspected
                )
            except PodmanError as error:
                if error.missing:
                    return None
                raise
        names = (*(inspected.repo_tags or ()), *(inspected.repo_digests or ()))
        return ImageInfo(
            inspected.id,
            self._without_claims(names),
            inspected.os,
            inspected.architecture,
            inspected.size,
            inspected.digest,
        )

    async def list(self) -> list[ImageInfo]:
        """All images."""
        with _add_subject("the list of images"):
            listed = await self._all()
        return [ImageInfo(image.id, self._without_claims(image.all_names), size=image.size) for image in listed]

    async def claim(self, reference: str) -> None:
        """Retain the image if others remove theirs; the error is ``missing`` if it is no longer here."""
        repository, _, tag = self._claim_of(reference).rpartition(":")
        request = PodmanRequest("POST", f"images/{encode_segment(reference)}/tag", {"repo": repository, "tag": tag})
        with _add_subject(f"the image {reference}"):
            await self._client.send(request, safe=True)

    async def release(self, reference: str) -> bool:
        """End the claim. The image is removed unless it has other names; False if a container uses it."""
        return await self._untag(self._claim_of(reference), reference)

    async def release_others(self, references: Collection[str]) -> None:
        """End all claims of this location except those on ``references``: claims whose record was lost."""
        claims = {self._claim_of(reference) for reference in references}
        with _add_subject("the list of images"):
            names = [name for listed in await self._all() for name in listed.all_names]
        for name in names:
            served = _SERVED.fullmatch(name)
            # A daemon that is killed before it renames an image leaves the name of the pull.
            lost_pull = served is not None and served["owner"] == self.owner
            if lost_pull or (name.startswith(f"{self._claims}:") and name not in claims):
                await self._untag(name, name)

    async def remove(self, reference: str, ours: Collection[str]) -> bool:
        """Remove an image that was pulled here and released, unless it has other names than ``ours``.

        Only names are removed: by its id, an image would go with the names that others gave it.
        """
        with _add_subject(f"the image {reference}"):
            listed = await self._all()
        names = next((image.all_names for image in listed if reference in map(_full_name, image.all_names)), None)
        if names is None or not {*self._without_claims(names)} <= {reference, *ours}:
            return True
        texts = [name for name in names if _full_name(name) == reference]
        # A list: all names are removed, even if one of them is in use.
        return all([await self._untag(name, reference) for name in texts])

    @property
    def _client(self) -> PodmanClient:
        if self._made is None:
            self._made = PodmanClient(self._socket, self._transport)
        return self._made

    async def _all(self) -> _AllImages:
        return decode_answer(await self._client.get("images/json"), _AllImages)

    async def _untag(self, name: str, reference: str) -> bool:
        with _add_subject(f"the image {reference}"):
            try:
                await self._client.delete(f"images/{encode_segment(name)}")
            except PodmanError as error:
                if error.status == _IN_USE:
                    return False
                raise
        return True

    def _claim_of(self, reference: str) -> str:
        """A name that no other location and no other reference has."""
        return f"{self._claims}:{sha256(reference.encode()).hexdigest()[:32]}"

    def _without_claims(self, names: Collection[str]) -> tuple[str, ...]:
        claims = (f"{self._claims}:", f"{self._claims}@")
        return tuple(dict.fromkeys(_full_name(name) for name in names if not name.startswith(claims)))


def _full_name(name: str) -> str:
    """The name with its digest, if it is that of an image that was served."""
    return _DIGEST_TAG.sub(r"@sha256:\1", name)


@contextmanager
def _add_subject(subject: str) -> Iterator[None]:
    """Let an error of Podman name its subject."""
    try:
        yield
    except PodmanError as error:
        message = f"{subject}: {error}"
        raise ImageError(message, reason=error.reason, retry=error.retry, missing=error.missing) from None


def _make_login_header(credentials: RegistryCredentials | None) -> dict[str, str]:
    if credentials is None:
        return {}
    words = {"username": credentials.username, "password": credentials.password}
    if credentials.identity_token:
        words["identitytoken"] = credentials.identity_token
    return {"X-Registry-Auth": base64.urlsafe_b64encode(msgspec.json.encode(words)).decode()}


def name_image(message: str, served: str, reference: str) -> str:
    """``message`` about an image that the daemon serves, with its own names: those that are served are random."""
    message = message.replace(served, reference)
    for served_part, part in zip(_split_name(served), _split_name(reference), strict=True):
        message = message.replace(served_part, part)
    return message


def _split_name(name: str) -> tuple[str, str]:
    """The host of a name with its port, and the path."""
    host, _, path = name.partition("@")[0].partition("/")
    return host, path


def _check_pulled(reference: str, answer: bytes) -> None:
    """Raise ImageError unless the end of ``answer`` is a success; its status always is one."""
    lines = answer.split()
    try:
        last = msgspec.json.decode(answer.splitlines()[-1] if lines else b"{}", type=_Pulled)
    except msgspec.MsgspecError:
        last = _Pulled()
    if last.id and not last.error:
        return
    words = (
        escape_text(strip_variation(" ".join(last.error.split())))[:_WORDS] or "Podman ended the pull without a result"
    )
    if _WRONG_PLATFORM in words:
        message = f"the image {reference} is not made for this host: {words}"
        raise ImageError(message, reason=Reason.IMAGE_PLATFORM_MISMATCH, retry=False)
    raise ImageError(f"the image {reference}: {words}", missing=_NO_MANIFEST.search(words) is not None)
