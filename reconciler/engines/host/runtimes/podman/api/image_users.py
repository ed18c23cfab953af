"""Users of images: the uid of a container whose manifest names none."""

from __future__ import annotations

import io
import tarfile

from reconciler.engines.host.runtimes.podman.api.answers import ImageInfo, PodmanError, read
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, segment

_PASSWD = "/etc/passwd"
_MOST_BYTES = 1 << 20


class ImageUsers:
    """The users of images, each found out once for an image."""

    def __init__(self, client: PodmanClient) -> None:
        self._client = client
        self._by_image: dict[str, int] = {}
        self._by_reference: dict[str, int] = {}

    def known(self, reference: str) -> int | None:
        """The user of an image that a container was made of before; None for another one."""
        return self._by_reference.get(reference)

    async def find(self, reference: str, container: str) -> int:
        """The user of an image of which ``container`` was made. Raises PodmanError."""
        image = read(await self._client.get(f"images/{segment(reference)}/json"), ImageInfo)
        if image.id not in self._by_image:
            name = (image.config.user if image.config else "").partition(":")[0]
            self._by_image[image.id] = int(name) if name.isdecimal() else await self._resolve(name, container)
        self._by_reference[reference] = self._by_image[image.id]
        return self._by_image[image.id]

    async def _resolve(self, name: str, container: str) -> int:
        """The number of a user's name in the files of a container; 0 if they do not have it."""
        if name in ("", "root"):
            return 0
        try:
            archive = await self._client.get(f"containers/{container}/archive", {"path": _PASSWD})
        except PodmanError as error:
            if error.missing:
                return 0
            raise
        return user_number(archive, name)


def user_number(archive: bytes, name: str) -> int:
    """The number of the user ``name`` in ``archive``, a tar archive of the file passwd; 0 if it is not there."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isfile() else None
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines() if file is not None else []
    except (tarfile.TarError, KeyError):
        return 0
    fields = (line.split(":") for line in lines)
    found = (each[2] for each in fields if len(each) > 2 and each[0] == name)
    number = next(found, "")
    return int(number) if number.isdecimal() else 0
