"""Users of images: the uid of a container whose manifest names none.

An image is hostile: what it names, and its files, are bounded before they are used.
"""

from __future__ import annotations

import io
import tarfile

from reconciler.engines.host.runtimes.podman.api.answers import PodmanError, StoredImage, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, encode_segment
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_DIGEST = "@sha256:"
_PASSWD = "/etc/passwd"
_MOST_BYTES = 1 << 20
_HEADER_BYTES = 1 << 10
"""For the headers of the archive before the content of its only file."""
_MOST_USER = 2**32 - 2
"""The kernel uses the number above it for "no change"."""
_SHOWN = 40


class ImageUsers:
    """The users of images, each found out once for an image."""

    def __init__(self, client: PodmanClient) -> None:
        self._client = client
        self._by_image: dict[str, int] = {}
        self._by_digest: dict[str, int] = {}

    async def find(self, reference: str, container: str) -> int:
        """The user of an image of which ``container`` was made. Raises EngineError."""
        if reference in self._by_digest:
            return self._by_digest[reference]
        image = decode_answer(await self._client.get(f"images/{encode_segment(reference)}/json"), StoredImage)
        if image.id not in self._by_image:
            name = (image.config.user if image.config else "").partition(":")[0]
            number = _parse_user_number(name)
            self._by_image[image.id] = number if number is not None else await self._resolve(name, container)
        if _DIGEST in reference:
            # It never means another image.
            self._by_digest[reference] = self._by_image[image.id]
        return self._by_image[image.id]

    async def _resolve(self, name: str, container: str) -> int:
        """The number of a user's name in the files of a container; 0 if they do not have it. Raises EngineError."""
        if name in ("", "root"):
            return 0
        path, limit = f"containers/{container}/archive", _MOST_BYTES + _HEADER_BYTES
        try:
            archive = await self._client.get_start(path, {"path": _PASSWD}, limit)
        except PodmanError as error:
            if error.missing:
                return 0
            raise
        return user_number(archive, name)


def user_number(archive: bytes, name: str) -> int:
    """The number of the user ``name`` in ``archive``, the beginning of a tar archive of the file passwd.

    It is 0 if the file does not have the name. Raises EngineError, reason UserNotFound.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            usable = member is not None and member.isreg() and not member.issparse() and member.size <= _MOST_BYTES
            file = tar.extractfile(member) if member is not None and usable else None
            content = file.read() if file is not None else None
    except (tarfile.TarError, ValueError, KeyError, RecursionError):
        content = None
    if content is None:
        message = f"the user {name[:_SHOWN]!r} of the image is unknown: its {_PASSWD} is not a file of at most 1 MiB"
        raise EngineError(message, reason=Reason.USER_NOT_FOUND)
    fields = (line.split(":") for line in content.decode(errors="replace").splitlines())
    text = next((field[2] for field in fields if len(field) > 2 and field[0] == name), "")
    return _parse_user_number(text) or 0


def _parse_user_number(text: str) -> int | None:
    """The number of a user; None if ``text`` is not a number. Raises EngineError if no user can have it."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    # The length first: Python refuses to convert very long numbers.
    if len(digits) > len(str(_MOST_USER)) or int(digits) > _MOST_USER:
        message = f"the image runs as user {text[:_SHOWN]}, and no user has a number above {_MOST_USER}"
        raise EngineError(message, reason=Reason.USER_NOT_FOUND)
    return int(digits)
