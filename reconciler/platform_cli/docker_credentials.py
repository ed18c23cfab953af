"""`docker-credential-platform`: keeps logins to registries for Docker, Podman and other clients of its protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from reconciler import __version__
from reconciler.errors import ReconcilerError, UsageError
from reconciler.platform_cli.profiles import locked_directory, profiles_path, replace_private_file
from reconciler.terminal.standard_streams import open_closed_streams

NAME = "docker-credential-platform"
# Clients compare these three texts; they are those of the protocol.
NOT_FOUND = "credentials not found in native keychain"
NO_SERVER = "no credentials server URL"
NO_USERNAME = "no credentials username"
_FILE = "registries.json"
_INPUT_BYTES = 1 << 20


class Credential(msgspec.Struct, frozen=True):
    """The login to a registry, in the form of the protocol."""

    ServerURL: str = ""
    Username: str = ""
    Secret: str = ""


class LoginStore:
    """The logins of this user in the file ``path``, by the address of the registry. Methods raise UsageError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Credential]:
        """All logins; none if there is no file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Credential])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror}") from None
        except msgspec.MsgspecError:
            raise UsageError(f"{self._path} is damaged; remove the file, and log in to the registries again") from None

    @contextmanager
    def changing(self) -> Iterator[dict[str, Credential]]:
        """All logins, written back at the end; another process waits until then."""
        try:
            with locked_directory(self._path.parent):
                credentials = self.read()
                yield credentials
                replace_private_file(self._path, msgspec.json.format(msgspec.json.encode(credentials)) + b"\n")
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from None


def store_path(environ: Mapping[str, str]) -> Path:
    """Where the logins are: beside the profiles of this user."""
    return profiles_path(environ).with_name(_FILE)


def main() -> None:
    """Run the action that the command line names and exit: 0 success, 1 refused or failed, 130 interrupted."""
    sys.exit(run_action(sys.argv[1:], os.environ))


def run_action(words: list[str], environ: Mapping[str, str]) -> int:
    """Run an action, with its input on stdin; returns the exit code. Errors go to stdout, as the protocol has it."""
    open_closed_streams()
    try:
        answer = _answer_action(words, LoginStore(store_path(environ)))
    except ReconcilerError as error:
        print(error)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        return 130
    if answer:
        print(answer)  # noqa: T201
    return 0


def _answer_action(words: list[str], store: LoginStore) -> str:
    """What an action prints. Raises UsageError."""
    usage = f"Usage: {NAME} <{'|'.join([*_ACTIONS, 'version'])}>"
    if len(words) != 1:
        raise UsageError(usage)
    if words[0] in ("version", "--version", "-v"):
        return f"{NAME} {__version__}"
    if words[0] in ("--help", "-h"):
        return usage
    if words[0] not in _ACTIONS:
        raise UsageError(f"{NAME}: unknown action: {words[0]}")
    return _ACTIONS[words[0]](store)


def _get_login(store: LoginStore) -> str:
    """The login to the registry whose address is on stdin."""
    credential = store.read().get(_read_server_address())
    if credential is None:
        raise UsageError(NOT_FOUND)
    return msgspec.json.encode(credential).decode()


def _store_login(store: LoginStore) -> str:
    """Keep the login on stdin."""
    try:
        credential = msgspec.json.decode(_read_stdin(), type=Credential)
    except msgspec.MsgspecError:
        # The decoder's text could quote the input, which has a password.
        raise UsageError('stdin must be an object: {"ServerURL": …, "Username": …, "Secret": …}') from None
    if not credential.ServerURL:
        raise UsageError(NO_SERVER)
    if not credential.Username:
        raise UsageError(NO_USERNAME)
    with store.changing() as credentials:
        credentials[credential.ServerURL] = credential
    return ""


def _erase_login(store: LoginStore) -> str:
    """Remove the login to the registry whose address is on stdin, if there is one."""
    server = _read_server_address()
    with store.changing() as credentials:
        credentials.pop(server, None)
    return ""


def _list_logins(store: LoginStore) -> str:
    """The address of each registry, with the user of its login."""
    return msgspec.json.encode(
        {server: credential.Username for server, credential in sorted(store.read().items())}
    ).decode()


def _read_server_address() -> str:
    """The address on stdin. Raises UsageError."""
    try:
        server = _read_stdin().decode().strip()
    except UnicodeDecodeError:
        raise UsageError("the address of the registry on stdin is not text in UTF-8") from None
    if not server:
        raise UsageError(NO_SERVER)
    return server


def _read_stdin() -> bytes:
    content = sys.stdin.buffer.read(_INPUT_BYTES + 1)
    if len(content) > _INPUT_BYTES:
        raise UsageError(f"stdin has more than {_INPUT_BYTES} bytes")
    return content


_ACTIONS: Mapping[str, Callable[[LoginStore], str]] = {
    "store": _store_login,
    "get": _get_login,
    "erase": _erase_login,
    "list": _list_logins,
}
