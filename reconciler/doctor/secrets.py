"""Encrypted secrets and those that stand on this host: whether the daemon can open them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reconciler.clock import Clock
from reconciler.doctor.check import Check, fine, problem
from reconciler.doctor.permissions import Identity, unreadable
from reconciler.errors import RecordsError, SourceError
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import FILE, Records
from reconciler.settings import Settings
from reconciler.sops.keys import KeyringError, identities_of, recipients_in

MOST = 200
"""Secrets that are opened to see whether they can be."""
MOST_TOLD = 10


def check_secrets(settings: Settings, who: Identity, clock: Clock) -> Iterator[Check]:
    """The identity of the settings, as the daemon's user ``who`` has it, and what it is to open.

    That only this user can try, since others are told otherwise about the same files.
    """
    if settings.secrets.identity is not None:
        yield _identity(settings.secrets.identity, who)
    path = settings.state / FILE
    if who.uid != os.geteuid() or not os.access(path, os.R_OK):
        return
    try:
        records = Records.open(path, read_only=True)
    except RecordsError:  # told where the records are looked at
        return
    try:
        yield from _opened(settings, records, clock)
    finally:
        records.close()


def _identity(path: Path, who: Identity) -> Check:
    about = "secrets"
    if (missing := unreadable(path, about, who)) is not None:
        return missing
    found = path.stat()
    if found.st_uid not in (0, who.uid):
        return problem(about, f"{path} belongs neither to root nor to {who.name}", f"chown root {path}")
    theirs = 0 if found.st_gid == who.gid else stat.S_IRGRP
    if found.st_mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP | theirs):
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        return problem(about, f"{path} can be read or changed by others (mode {mode}), so it opens nothing",
                       f"chgrp {who.name} {path}; chmod 640 {path}")  # fmt: skip
    try:
        text = path.read_text()
        identities_of(text)
    except (KeyringError, UnicodeDecodeError, OSError) as error:
        words = str(error) if isinstance(error, KeyringError) else "it cannot be read as text"
        return problem(about, f"{path}: {words}", "restore it, or make another one with age-keygen and add it with "
                       "`reconciler secret rotate --add`")  # fmt: skip
    return fine(about, f"{path} opens what is encrypted for {', '.join(recipients_in(text)) or 'its SSH key'}")


def _opened(settings: Settings, records: Records, clock: Clock) -> Iterator[Check]:
    """What becomes of trying; a source that cannot be read is told where the sources are looked at."""
    found: dict[str, str] = {}
    for source in settings.sources:
        keys = records.secret_data.missing(source.name)[:MOST]
        if keys and (source.local or os.path.isfile(settings.state / "mirrors" / f"{source.name}.git" / "HEAD")):
            with suppress(SourceError):
                view = SourcePipeline(settings, source, records, clock).view()
                found |= {key: _fault(view, key) for key in keys}
    faults = [fault for fault in found.values() if fault]
    for fault in faults[:MOST_TOLD]:
        yield problem("secrets", fault, "bring back the identity or the file that it needs")
    if count := len(found) - len(faults):
        yield fine("secrets", f"{count} that {'are' if count > 1 else 'is'} encrypted or on this host can be opened")


def _fault(view: DesiredStateView, key: str) -> str:
    try:
        view.bodies.resource(key)
    except SourceError as error:
        return str(error)
    return ""
