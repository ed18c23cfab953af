"""Profiles: where the API is, who calls it, and the default org and GVC; in a file of this user alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from reconciler.errors import UsageError

DEFAULT = "default"
_FILE = "profiles.json"


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """Defaults of the common options. ``expires`` (seconds since the epoch) is the end of ``token``, 0: unknown.

    With ``keyring`` both tokens are in the keyring of the desktop.
    """

    org: str = ""
    gvc: str = ""
    endpoint: str = ""
    token: str = ""
    refresh_token: str = ""
    expires: float = 0.0
    keyring: bool = False

    @property
    def has_token(self) -> bool:
        """Whether there is a token, here or in the keyring."""
        return bool(self.token) or self.keyring


class Profiles(msgspec.Struct, frozen=True):
    """All profiles by name, and the name of the one that a command takes by default."""

    current: str = DEFAULT
    profiles: dict[str, Profile] = {}

    def having(self, name: str, profile: Profile) -> Self:
        """These profiles with ``profile`` as ``name``."""
        return replace(self, profiles={**self.profiles, name: profile})

    def without(self, name: str) -> Self:
        """These profiles without ``name``, which is not the one that commands take by default any more."""
        rest = {text: profile for text, profile in self.profiles.items() if text != name}
        return replace(self, current=DEFAULT if self.current == name else self.current, profiles=rest)


def profiles_path(environ: Mapping[str, str]) -> Path:
    """Where the profiles are: ``platform/profiles.json`` in the directory for configuration of this user."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base, "platform", _FILE)


def load_profiles(path: Path) -> Profiles:
    """Read the file; no profiles if there is none. Raises UsageError if it cannot be read or has another form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profiles)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise UsageError(f"the profiles in {path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        text = f"the profiles in {path} are damaged; remove the file, and log in again: platform login"
        raise UsageError(text) from None


def change_profiles(path: Path, change: Callable[[Profiles], Profiles]) -> Profiles:
    """Replace the file by what ``change`` makes of it; another command waits until then. Raises UsageError."""
    try:
        with locked_directory(path.parent):
            profiles = load_profiles(path)
            changed = change(profiles)
            if changed != profiles or not path.exists():
                replace_private_file(path, msgspec.json.format(msgspec.json.encode(changed)) + b"\n")
            return changed
    except OSError as error:
        raise UsageError(f"the profiles in {path} cannot be written: {error.strerror}") from None


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """No other process is in here with ``path`` at the same time; it is made if it is missing. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def replace_private_file(path: Path, content: bytes) -> None:
    """Replace ``path``, which only this user can read at any time; readers see the old or the new content.

    Raises OSError.
    """
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp makes the file with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
