"""The registry of the images of an org, for Docker and Podman on this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from reconciler.errors import UsageError
from reconciler.platform_cli.docker_credentials import NAME, Credential, LoginStore, store_path
from reconciler.platform_cli.documents import read_hidden
from reconciler.platform_cli.profiles import replace_private_file
from reconciler.platform_cli.session import Session

HELPER = NAME.removeprefix("docker-credential-")


def docker_login(session: Session, kind: str, registry: str | None, username: str | None) -> None:  # noqa: ARG001
    """Let Docker ask `platform` for logins to the registry; with ``username``, also store a login."""
    address = registry or str((session.client.get(session.path("org")).get("status") or {}).get("registry") or "")
    host = address.partition("/")[0]
    if not host:
        raise UsageError("the settings of the daemon name no registry of images: add --registry HOST[:PORT]")
    if username:
        credential = Credential(host, username, read_hidden("Password"))
        with LoginStore(store_path(session.environ)).changing() as credentials:
            credentials[host] = credential
    path = _configure_docker(session, host)
    session.output.line(f"{path} has the helper for {host}")
    if not username:
        session.output.note(f"next: docker login {host}")
    if shutil.which(NAME) is None:
        session.output.note(f"{NAME} is not in PATH, where docker looks for it")


def _configure_docker(session: Session, host: str) -> Path:
    """Name the helper in Docker's configuration of this user; returns its path. Raises UsageError."""
    directory = session.environ.get("DOCKER_CONFIG")
    path = Path(directory) if directory else Path.home() / ".docker"
    path = (path / "config.json").resolve()
    configuration = _read_docker_config(path)
    helpers = configuration.setdefault("credHelpers", {})
    if not isinstance(helpers, dict):
        raise UsageError(f"credHelpers in {path} is no object; correct it, and try again")
    if helpers.get(host) != HELPER:
        helpers[host] = HELPER
        try:
            replace_private_file(path, json.dumps(configuration, indent="\t", ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _read_docker_config(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes() or b"{}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not an object in JSON; correct it, and try again")
    return content
