"""A source as the rest of the program uses it: read in place if it is local, through a mirror if it is remote."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import SourceEmpty, SourceRewritten, UsageError
from reconciler.source.url import source_address
from reconciler.tracing import record_span

if TYPE_CHECKING:
    from reconciler.model.revision import Revision
    from reconciler.settings import SourceSettings
    from reconciler.source.mirror import Mirror
    from reconciler.source.repository import Repository


class Source:
    """One repository, ref and path. Its creation touches neither network nor disk; its methods do."""

    def __init__(self, settings: SourceSettings, path: Path | None, mirror: Mirror | None) -> None:
        self.settings = settings
        self.name = settings.name
        self.mirror = mirror
        self._path = path
        self._filled = ""

    @property
    def local(self) -> bool:
        """Whether it is on this machine and read in place."""
        return self.mirror is None

    @cached_property
    def repository(self) -> Repository:
        """The repository with the objects. Raises SourceNotFound if there is none, again at each access."""
        from reconciler.source.repository import Repository

        path = self.mirror.prepare() if self.mirror is not None else self._path
        assert path is not None
        return Repository(path, self.settings)

    def refresh(self) -> None:
        """Fetch from the remote; does nothing for a local source.

        Raises SourceUnreachable or SourceNotFound; earlier fetched objects stay readable.
        """
        if self.mirror is not None:
            with record_span("fetch"):
                self.mirror.refresh()

    def revision(self, expression: str = "", head: str = "") -> Revision:
        """The current revision, or that of ``expression``, in which ``HEAD`` means the commit ``head``.

        Raises SourceNotFound, and SourceEmpty if the path contains no manifest.
        """
        revision = self.repository.resolve(expression, head)
        if revision.tree != self._filled and not self.repository.has_manifests(revision.tree):
            raise SourceEmpty(
                f"source {self.name}: {revision} holds no manifest below {self.settings.path!r}; nothing is changed. "
                "Check path, include and exclude, or remove the resources one by one"
            )
        self._filled = revision.tree
        return revision


def open_source(settings: SourceSettings, state_dir: Path) -> Source:
    """The source for ``settings``; mirrors are stored under ``state_dir``.

    Raises UsageError for an invalid url, and for an impossible signature requirement.
    """
    if settings.verify is not None and settings.verify.signed == "tag" and not settings.tag:
        raise UsageError(f"source {settings.name}: `signed: tag` is for a source that stays at a tag; set its tag")
    address = source_address(settings)
    if address.path is not None:
        return Source(settings, address.path, None)
    from reconciler.source.mirror import Mirror

    return Source(settings, None, Mirror(settings, address, state_dir / "mirrors" / f"{settings.name}.git"))


def check_rewrite(repository: Repository, previous: str, revision: Revision) -> None:
    """Raises SourceRewritten if the branch dropped the commit ``previous`` (``""``: none yet) without permission.

    Tags and commits are the operator's explicit choice and may go back.
    """
    settings = repository.settings
    chosen = settings.allow_rewrite or settings.tag or settings.commit
    if chosen or not previous or repository.contains(revision.commit, previous):
        return
    raise SourceRewritten(
        f"source {settings.name}: {revision.ref} moved to {revision.commit[:12]}, which does not contain the last "
        f"commit {previous[:12]}; push a commit that does, follow this one (reconciler approve "
        f"{revision.commit[:12]}), or set allowRewrite to follow any"
    )
