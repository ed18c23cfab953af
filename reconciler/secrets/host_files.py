"""Secrets on this host: age identities, files that manifests refer to, and systemd credentials."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import msgspec

from reconciler.errors import ReconcilerError
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.kinds.secret import CREDENTIAL, HostPlace
from reconciler.settings import Settings, SourceSettings
from reconciler.sops.keys import Keyring, KeyringError, identities_of
from reconciler.sops.rules import FILE_MISSING, FILE_UNSAFE

MAX_FILE_BYTES = 1 << 20
"""The largest size in bytes of a file with a secret."""

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable with the directory in which systemd puts the credentials of a service."""

_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.@]*")


class HostSecretError(ReconcilerError):
    """A file cannot be used as a secret: ``rule`` is the kind of fault; the message never contains file content."""

    def __init__(self, rule: str, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.suggestion = suggestion


class HostSecretDirectory(msgspec.Struct, frozen=True):
    """The files that manifests of ``source`` may refer to: below ``directory``, and credentials in ``allowed``.

    ``directory`` is None for no files; ``allowed`` is None for all names. ``credentials`` is the directory of systemd.
    """

    source: str
    directory: Path | None
    credentials: str = ""
    allowed: tuple[str, ...] | None = None

    @classmethod
    def of(cls, settings: Settings, source: SourceSettings) -> HostSecretDirectory:
        """The permissions of ``source`` from ``settings`` and the environment.

        A single source may use ``secrets.directory`` and every credential. With several sources, each may use only what
        its own settings name, so that no source can use what belongs to another.
        """
        own = source.secrets
        single = len(settings.sources) == 1
        directory = own.directory or (settings.secrets.directory if single else None)
        allowed = own.credentials if own.credentials is not None or single else ()
        return cls(source.name, directory, os.environ.get(CREDENTIALS, ""), allowed)

    def text(self, host_place: HostPlace) -> str:
        """The text at ``host_place``; a single line is returned without its line break. Raises HostSecretError."""
        path = self._credential(host_place.name) if host_place.sort == CREDENTIAL else self._file(host_place.name)
        text = read_private_file(path, host_place.name)
        return text[:-1] if text.endswith("\n") and text.count("\n") == 1 else text

    def _credential(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise HostSecretError(
                FILE_UNSAFE, "this is not the name of a credential", "write letters, digits, -, _ and ."
            )
        if self.allowed is not None and name not in self.allowed:
            message = f"the settings do not grant the credential `{name}` to the source {self.source}"
            raise HostSecretError(FILE_UNSAFE, message, "name it in the source's `secrets.credentials`")
        if not self.credentials:
            message = f"systemd passed no credentials, so there is no `{name}`"
            raise HostSecretError(FILE_MISSING, message, f"add LoadCredential={name}:PATH to the unit")
        return Path(self.credentials) / name

    def _file(self, name: str) -> Path:
        if self.directory is None:
            message = f"the settings name no directory for such files of the source {self.source}"
            advice = "name one in the source's `secrets.directory`; the common one serves a single source"
            raise HostSecretError(FILE_UNSAFE, message, advice)
        try:
            path = (self.directory / name).resolve()
            inside = path.is_relative_to(self.directory.resolve())
        except (OSError, ValueError, RuntimeError):
            raise HostSecretError(FILE_MISSING, "this is no path", "name a file") from None
        if not inside:
            message = "this is not below `secrets.directory` of the settings, which is all that manifests may name"
            raise HostSecretError(FILE_UNSAFE, message, "move the file there, or change that setting")
        return path


def list_host_directories(settings: Settings) -> set[Path]:
    """The directories with all that manifests may refer to, of every source."""
    permissions = [HostSecretDirectory.of(settings, source) for source in settings.sources]
    own = {granted.directory for granted in permissions if granted.directory is not None}
    return own | {Path(granted.credentials) for granted in permissions if granted.credentials and granted.allowed != ()}


def read_private_file(path: Path, name: str) -> str:
    """The content of a file that only root, this process's user and its group may read.

    Raises HostSecretError, whose message calls the file ``name``.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            _require_safe_file(name, os.fstat(file.fileno()))
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        place = "there" if name == str(path) else f"at {path}"
        hint = f"put the file {place}, readable for the reconciler's user alone"
        raise HostSecretError(FILE_MISSING, f"{name} cannot be read: {error.strerror}", hint) from None
    if len(content) > MAX_FILE_BYTES:
        raise HostSecretError(
            FILE_MISSING, f"{name} has more than {MAX_FILE_BYTES >> 20} MiB", "a secret is smaller than that"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or "\0" in text:
        what = "holds nothing" if not content else "holds no text"
        raise HostSecretError(FILE_MISSING, f"{name} {what}", "write the secret into it, as UTF-8")
    return text


def keyring_of(settings: Settings) -> Keyring:
    """The identities in the settings, which decrypt encrypted secrets."""
    path = settings.secrets.identity
    if path is None:
        return Keyring(absence="the settings name no identity to decrypt this with", required=True)
    try:
        text = read_private_file(path, str(path))
        identities_of(text)
    except HostSecretError as fault:
        return Keyring(absence=f"there is no identity to decrypt this with: {fault}", required=True)
    except KeyringError as error:
        return Keyring(absence=f"there is no identity to decrypt this with: {path}: {error}", required=True)
    return Keyring((text,), required=True)


def manifest_context(settings: Settings, secret_key: bytes) -> ManifestContext:
    """The context for decoding manifests under ``settings``, including the identities that decrypt their secrets."""
    policy, images = settings.secrets.policy, settings.images.patterns
    return ManifestContext(
        settings.org,
        settings.scheme,
        secret_key,
        keyring_of(settings),
        policy,
        images=images,
        unknown_fields=settings.unknown_fields,
        channels=list_channels(settings),
    )


def list_channels(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The channels of ``settings`` by name, with the GVCs whose manifests may name each."""
    notifications = settings.notifications
    return {name: one.gvcs for name, one in notifications.channels.items()} if notifications is not None else {}


def _require_safe_file(name: str, stat_result: os.stat_result) -> None:
    if not stat.S_ISREG(stat_result.st_mode):
        raise HostSecretError(FILE_MISSING, f"{name} is not a file", "name a file")
    if stat_result.st_uid not in (0, os.geteuid()):
        message = f"{name} belongs neither to root nor to the reconciler's user"
        raise HostSecretError(FILE_UNSAFE, message, f"chown root {name}")
    ours = stat_result.st_gid == os.getegid()
    if stat_result.st_mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP | (0 if ours else stat.S_IRGRP)):
        raise HostSecretError(FILE_UNSAFE, f"{name} can be read or changed by others", f"chmod 0600 {name}")
