"""Checks whether the daemon can read encrypted secrets and those stored on this host."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.checks import Check, UserIdentity, check_read_access, make_ok_check, make_problem
from reconciler.clock import Clock
from reconciler.errors import RecordsError, SourceError
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings
from reconciler.sops.keys import KeyringError, identities_of, recipients_in

MOST = 200
"""The most secrets read for the check."""
MOST_LISTED = 10


def check_secrets(settings: Settings, who: UserIdentity, clock: Clock) -> Iterator[Check]:
    """Check the identity of the settings for the daemon's user ``who``, and the secrets that it decrypts.

    Only ``who`` can check the secrets: for other users the permissions differ.
    """
    if settings.secrets.identity is not None:
        yield _check_identity_file(settings.secrets.identity, who)
    with readable_records(settings, who) as records:
        if records is not None:
            yield from _check_unrecorded_secrets(settings, records, clock)


@contextmanager
def readable_records(settings: Settings, who: UserIdentity) -> Iterator[Records | None]:
    """The records, for reading; None if this user is not the daemon's, or ``check_records`` reports what is wrong."""
    path, records = settings.state / FILE, None
    if who.uid == os.geteuid() and os.access(path, os.R_OK):
        with suppress(RecordsError):
            records = Records.open(path, read_only=True)
    try:
        yield records
    finally:
        if records is not None:
            records.close()


def _check_identity_file(path: Path, who: UserIdentity) -> Check:
    about = "secrets"
    if (missing := check_read_access(path, about, who)) is not None:
        return missing
    stat_result = path.stat()
    if stat_result.st_uid not in (0, who.uid):
        return make_problem(about, f"{path} belongs neither to root nor to {who.name}", f"chown root {path}")
    theirs = 0 if stat_result.st_gid == who.gid else stat.S_IRGRP
    if stat_result.st_mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP | theirs):
        mode = f"{stat.S_IMODE(stat_result.st_mode):o}"
        return make_problem(
            about,
            f"{path} can be read or changed by others (mode {mode}), so it is not used",
            f"chgrp {who.name} {path}; chmod 640 {path}",
        )
    try:
        text = path.read_text()
        identities_of(text)
    except (KeyringError, UnicodeDecodeError, OSError) as error:
        words = str(error) if isinstance(error, KeyringError) else "it cannot be read as text"
        return make_problem(
            about,
            f"{path}: {words}",
            "restore it, or make another one with age-keygen and add it with `reconciler secret rotate --add`",
        )
    return make_ok_check(
        about, f"{path} decrypts what is encrypted for {', '.join(recipients_in(text)) or 'its SSH key'}"
    )


def _check_unrecorded_secrets(settings: Settings, records: Records, clock: Clock) -> Iterator[Check]:
    """Read the secrets without recorded values; ``check_sources`` reports a source that cannot be read."""
    results: dict[str, str] = {}
    for source in settings.sources:
        keys = records.secret_data.missing(source.name)[:MOST]
        if keys and (source.local or os.path.isfile(settings.state / "mirrors" / f"{source.name}.git" / "HEAD")):
            with suppress(SourceError):
                view = SourcePipeline(settings, source, records, clock).view()
                results |= {key: _find_secret_fault(view, key) for key in keys}
    faults = [fault for fault in results.values() if fault]
    for fault in faults[:MOST_LISTED]:
        yield make_problem("secrets", fault, "restore the identity or the file that it needs")
    if count := len(results) - len(faults):
        yield make_ok_check(
            "secrets", f"{count} that {'are' if count > 1 else 'is'} encrypted or on this host can be opened"
        )


def _find_secret_fault(view: DesiredStateView, key: str) -> str:
    try:
        view.bodies.resource(key)
    except SourceError as error:
        return str(error)
    return ""
