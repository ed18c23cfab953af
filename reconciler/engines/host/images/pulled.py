"""The record of the images that this location pulled or claimed; no other image is ever changed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.errors import EngineError
from reconciler.logs import log


class PulledImage(msgspec.Struct, frozen=True):
    """An image that was claimed, or was about to be; ``unused_since`` in seconds since the epoch, None while in use.

    ``pulled``: it was not here before.
    """

    unused_since: float | None = None
    pulled: bool = True


class _File(msgspec.Struct, frozen=True):
    images: dict[str, PulledImage] = {}


def pulled_path(root: Path) -> Path:
    """The record of the location whose directory is ``root``."""
    return root / "images" / "pulled.json"


def has_pulled(root: Path) -> bool:
    """Whether images that the location pulled or claimed may be here; no if its record cannot be read."""
    try:
        return bool(PulledImages(pulled_path(root)).images())
    except EngineError:
        return False


class PulledImages:
    """The images by their references with digests, in the file ``path``. Methods that write raise EngineError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._images = self._read()

    def images(self) -> dict[str, PulledImage]:
        """All images."""
        return dict(self._images)

    def add(self, reference: str, *, pulled: bool) -> None:
        """Record ``reference`` before it is pulled or claimed, so that after a crash the image can be removed."""
        image = self._images.get(reference)
        if image is None or image.pulled < pulled:
            self.replace({**self._images, reference: PulledImage(pulled=pulled)})

    def replace(self, images: dict[str, PulledImage]) -> None:
        """Record exactly ``images``."""
        if images != self._images:
            write_atomic(self._path, msgspec.json.encode(_File(images)), 0o600)
            self._images = dict(images)

    def _read(self) -> dict[str, PulledImage]:
        try:
            return dict(msgspec.json.decode(self._path.read_bytes(), type=_File).images)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise write_error(f"{self._path} cannot be read", error) from None
        except (msgspec.MsgspecError, UnicodeError):
            log().warning("images", message=f"{self._path} is damaged: images that were pulled before are not removed")
            return {}
