"""Checks of permissions: of the settings, the state directory and the files with keys."""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from reconciler.checks import (
    ENTER,
    WRITE,
    Check,
    UserIdentity,
    check_read_access,
    find_identity,
    make_ok_check,
    make_problem,
    make_warning,
)
from reconciler.records.store import FILE
from reconciler.settings import Settings, SourceSettings


def daemon_user(settings: Settings) -> UserIdentity:
    """The owner of the state directory; the present user where it does not exist yet."""
    try:
        return find_identity(settings.state.stat().st_uid)
    except OSError:
        return find_identity(os.geteuid())


def check_rights(settings: Settings, settings_file: Path, who: UserIdentity) -> Iterator[Check]:
    """Check the files of the operator and of the daemon, which runs as ``who``."""
    yield _check_protected_file(settings_file, "settings", who)
    yield _check_state_directory(settings.state, who)
    if settings.readers:
        yield _check_readers(settings, settings_file, who)
    if settings.api is not None and settings.api.signing_key is not None:
        yield _check_secret_file(settings.api.signing_key, "api", who, ssh=True)
    for source in settings.sources:
        yield from _check_credentials(source, who)
        if source.verify is not None:
            files = (source.verify.allowed_signers, source.verify.revoked_keys, source.verify.gpg_keyring)
            yield from (_check_protected_file(path, f"source {source.name}", who) for path in files if path is not None)


def _check_state_directory(state: Path, who: UserIdentity) -> Check:
    about, records = "state directory", state / FILE
    try:
        stat_result = state.stat()
        mode = stat.S_IMODE(stat_result.st_mode)
        owner = records.stat().st_uid if records.exists() else stat_result.st_uid
    except FileNotFoundError:
        return make_ok_check(about, f"{state} does not exist yet; the daemon creates it")
    except OSError as error:
        return make_problem(about, f"{state}: {error.strerror}", "run this as the daemon's user or as root")
    if not who.may(state, WRITE | ENTER):
        return make_problem(
            about, f"{who.name} may not write to {state}", f"chown -R {who.name} {state}; chmod 700 {state}"
        )
    # Under a daemon of root, workloads of other users pass through to their own directories.
    if mode & (0o027 if who.uid else 0o026):
        return make_problem(about, f"{state} is open to others (mode {mode:o})", f"chmod 700 {state}")
    if owner != stat_result.st_uid:
        return make_problem(
            about,
            f"{records} belongs to {find_identity(owner).name}, not to {who.name}",
            f"chown {who.name} {records}*",
        )
    if records.exists() and stat.S_IMODE(records.stat().st_mode) & 0o037:
        return make_problem(about, f"{records}, which contains secrets, is open to others", f"chmod 600 {records}*")
    return make_ok_check(about, f"{state} belongs to {who.name}, mode {mode:o}")


def _check_readers(settings: Settings, settings_file: Path, who: UserIdentity) -> Check:
    about, group = "readers", settings.readers
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        return make_problem(about, f"this host has no group {group}", f"groupadd --system {group}")
    if who.uid and gid not in who.groups:
        return make_problem(
            about,
            f"{who.name} is not in the group {group}, so it cannot give the group access",
            f"usermod -aG {group} {who.name}, and restart the daemon",
        )
    stat_result = settings_file.stat()
    if not stat_result.st_mode & 0o004 and not (stat_result.st_gid == gid and stat_result.st_mode & 0o040):
        return make_problem(about, f"the group {group} may not read {settings_file}", f"chmod o+r {settings_file}")
    return make_ok_check(about, f"members of {group} may read")


def _check_credentials(source: SourceSettings, who: UserIdentity) -> Iterator[Check]:
    about, credentials = f"source {source.name}", source.credentials
    if credentials.token_file is not None:
        yield _check_secret_file(credentials.token_file, about, who)
    if credentials.key_file is not None:
        yield _check_secret_file(credentials.key_file, about, who, ssh=True)
    for path in (credentials.known_hosts, credentials.ca_file):
        if path is not None:
            yield _check_protected_file(path, about, who)
    if credentials.token_file is not None and credentials.allow_insecure and source.url.startswith("http://"):
        yield make_warning(about, "its token crosses the network as plain text", "use https://")


def _check_secret_file(path: Path, about: str, who: UserIdentity, *, ssh: bool = False) -> Check:
    if (missing := check_read_access(path, about, who)) is not None:
        return missing
    stat_result = path.stat()
    mode = stat.S_IMODE(stat_result.st_mode)
    if mode & 0o007:
        return make_problem(about, f"every user of this host may read {path} (mode {mode:o})", f"chmod o= {path}")
    if ssh and mode & 0o077 and stat_result.st_uid == who.uid:
        return make_problem(about, f"ssh does not use {path}: its mode is {mode:o}", f"chmod 600 {path}")
    if not stat_result.st_size:
        return make_problem(about, f"{path} is empty", "put the credentials there")
    return make_ok_check(about, f"{path} can be read by {who.name}, but not by other users")


def _check_protected_file(path: Path, about: str, who: UserIdentity) -> Check:
    """Check that only trusted users can write to ``path``, which controls the daemon."""
    if (missing := check_read_access(path, about, who)) is not None:
        return missing
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o002:
        return make_problem(about, f"every user of this host may change {path} (mode {mode:o})", f"chmod o-w {path}")
    if mode & 0o020 and path.stat().st_gid != 0:
        return make_warning(about, f"its group may change {path} (mode {mode:o})", f"chmod g-w {path}")
    return make_ok_check(about, f"{path} can be read by {who.name}, but not changed by others")
