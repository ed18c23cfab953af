"""Checks of the sources: reachable, with the followed branch, signed where required, and writable for status."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reconciler.checks import WRITE, Check, UserIdentity, make_ok_check, make_problem, make_warning
from reconciler.clock import Clock
from reconciler.errors import ReconcilerError, SourceError
from reconciler.listing import list_paths
from reconciler.model.revision import shorten_id, shorten_revision
from reconciler.reasons import Reason
from reconciler.settings import Settings, SourceSettings
from reconciler.source.remote import Remote
from reconciler.source.source import Source, open_source
from reconciler.source.url import RepositoryAddress, source_address, wanted_ref
from reconciler.times import format_duration

PATIENCE = 15.0
"""Timeout in seconds for a remote, unless its ``timeout`` is shorter."""
MOST_LOOSE, MOST_PACKS = 6_700, 50
"""Objects in files of their own, and packs, from which on git collects by itself (gc.auto, gc.autoPackLimit)."""
AHEAD = 60.0
"""Seconds that a commit's time may be ahead of this host's clock."""


def check_sources(settings: Settings, who: UserIdentity, clock: Clock) -> Iterator[Check]:
    """Check each source, as this process and as the daemon's user ``who``."""
    for source_settings in settings.sources:
        patient = msgspec.structs.replace(source_settings, timeout=min(source_settings.timeout, PATIENCE))
        about = f"source {source_settings.name}"
        try:
            address = source_address(source_settings)
            if address.path is None:
                yield _check_remote(patient, address, about)
            mirror = settings.state / "mirrors" / f"{source_settings.name}.git"
            if address.path is not None or os.path.isfile(mirror / "HEAD"):
                source = open_source(patient, settings.state)
                yield _check_revision(source, about, clock)
                yield from _check_status_branch(source, address, about, who)
                yield from _check_loose_objects(source, about)
        except SourceError as error:
            yield make_problem(
                about, _strip_source_name(error, source_settings.name), _ADVICE.get(error.reason, "see the message")
            )
        except ReconcilerError as error:
            yield make_problem(about, _strip_source_name(error, source_settings.name), "correct the settings")


_ADVICE = {
    Reason.SOURCE_UNREACHABLE: "check the network, the credentials and that the remote is up",
    Reason.SOURCE_NOT_FOUND: "restore it, or correct the settings",
    Reason.SOURCE_EMPTY: "check path, include and exclude in the settings",
    Reason.SOURCE_UNVERIFIED: "sign it with a key that the settings trust, or trust its key",
}


def remote_tip(settings: SourceSettings, branch: str) -> str:
    """The newest commit of ``branch`` of a remote; "" if it has none. Raises SourceError."""
    patient = msgspec.structs.replace(settings, timeout=min(settings.timeout, PATIENCE))
    address = source_address(settings)
    remote = Remote(patient, address)
    with tempfile.TemporaryDirectory(prefix="reconciler-") as directory:
        answer = remote.run(Path(directory), ["ls-remote", "--", address.url, f"refs/heads/{branch}"])
    if answer.code:
        raise remote.failure(answer)
    return answer.output.partition("\t")[0]


def _check_remote(settings: SourceSettings, address: RepositoryAddress, about: str) -> Check:
    remote = Remote(settings, address)
    ref = "HEAD" if settings.commit else wanted_ref(settings)
    with tempfile.TemporaryDirectory(prefix="reconciler-") as directory:
        answer = remote.run(Path(directory), ["ls-remote", "--exit-code", "--", address.url, ref])
    if answer.code == 2:
        return make_problem(about, f"the remote answers and has no {ref}", "push it, or correct the settings")
    if answer.code:
        raise remote.failure(answer)
    return make_ok_check(about, f"the remote answers and has {ref}")


def _check_revision(source: Source, about: str, clock: Clock) -> Check:
    revision = source.revision()
    ahead = revision.time - clock.now()
    if ahead > AHEAD:
        message = f"{shorten_revision(str(revision))} was committed {format_duration(ahead)} from now"
        return make_warning(about, message, "set the clock of this host, or of the author")
    signed = ", signed by a trusted key" if source.settings.verify is not None else ""
    short = shorten_id(revision.commit)
    place = f"{revision.ref} is at {short}" if revision.ref != revision.commit else f"it has the commit {short}"
    return make_ok_check(about, f"{place}{signed}")


def _check_status_branch(source: Source, address: RepositoryAddress, about: str, who: UserIdentity) -> Iterator[Check]:
    settings = source.settings
    branch = settings.status.branch
    if settings.read_only or (source.mirror is not None and not settings.status.push):
        yield make_ok_check(about, f"{branch} is stored in the state directory")
    elif source.mirror is None:
        folder = source.repository.commondir
        closed = [part for part in (folder / "refs", folder / "objects", folder) if not who.may(part, WRITE)]
        if closed:
            advice = f"allow {who.name} to write there, or set readOnly for the source"
            yield make_problem(about, f"{branch} cannot be written: {who.name} may not write to {closed[0]}", advice)
        else:
            yield make_ok_check(about, f"{branch} can be written")
    else:
        commit = source.repository.resolve().commit
        words = ["push", "--dry-run", "--porcelain", "--no-verify", "--", address.url, f"+{commit}:refs/heads/{branch}"]
        remote = Remote(settings, address)
        answer = remote.run(source.repository.gitdir, words)
        if answer.code:
            advice = "allow its login to push there, or set readOnly for the source"
            yield make_problem(about, f"{branch} cannot be pushed: {remote.words(answer)}", advice)
        else:
            yield make_ok_check(about, f"{branch} can be pushed")


def _check_loose_objects(source: Source, about: str) -> Iterator[Check]:
    """A warning if a repository that is not ours needs the garbage collection that only its owner runs."""
    if source.mirror is not None:
        return
    repository = source.repository.commondir
    # Ids are evenly distributed, so one of the 256 directories is enough; git itself counts in this way.
    loose = 256 * len(list(list_paths(repository / "objects" / "17", "*")))
    packs = len(list(list_paths(repository / "objects" / "pack", "*.pack")))
    if loose > MOST_LOOSE or packs > MOST_PACKS:
        message = f"{repository} has about {loose:,} objects in files of their own, and {packs} packs"
        yield make_warning(about, message, "run `git gc` there, or set receive.autogc if it is pushed to")


def _strip_source_name(error: ReconcilerError, name: str) -> str:
    return str(error).removeprefix(f"source {name}: ")
