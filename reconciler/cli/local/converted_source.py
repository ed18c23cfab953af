"""What `reconciler up` runs of other tools: files are converted, and committed to a repository of its own.

The repository is bare, below the state directory. Each change of the files is one commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.cli.local_settings import DEFAULT_LOCATION, Followed, make_state
from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import STDIN
from reconciler.local_state import ORIGIN_FILE, find_state

if TYPE_CHECKING:
    import pygit2

_BRANCH = "main"
_REF = f"refs/heads/{_BRANCH}"
_REPOSITORY = "manifests.git"
_AUTHOR = ("reconciler", "reconciler@localhost")
_ATTEMPTS = 5


class ConvertedSource(NamedTuple):
    """What is followed, and the commit that this conversion made; "" where nothing differs from the former one."""

    followed: Followed
    commit: str


def find_directory(files: Sequence[str]) -> Path:
    """The directory that the conversion of ``files`` stands for: the first one, or where the first one is.

    Raises UsageError where it does not exist.
    """
    if files[0] == STDIN:
        return Path.cwd()
    path = Path(files[0])
    if not path.exists():
        raise UsageError(f"{path} does not exist; name a file of compose, or with --k8s a directory")
    return path.resolve() if path.is_dir() else path.resolve().parent


def follow_converted(files: Sequence[str], gvc: str = "") -> ConvertedSource:
    """Convert ``files``, print the remarks, and commit the manifests to the repository of their directory.

    Raises UsageError and RefusedError, then nothing is committed.
    """
    from reconciler.cli.convert_commit import make_subject
    from reconciler.cli.convert_io import convert_named_files, name_directory, print_plain_findings
    from reconciler.convert.drafts import file_of
    from reconciler.convert.files import ConversionOptions
    from reconciler.documents.writer import render_document
    from reconciler.input_files import ProjectFiles
    from reconciler.model.finding import has_errors

    directory = find_directory(files)
    options = ConversionOptions(
        gvc,
        open_project=lambda folder: ProjectFiles(folder, allow_outside=False).read,
        environ=os.environ,
        name_directory=name_directory,
        locations=(DEFAULT_LOCATION,),
    )
    converted = convert_named_files(files, options)
    print_plain_findings(converted.findings)
    if has_errors(converted.findings):
        raise RefusedError("the files have errors, so nothing is converted; what runs stays as it is")
    manifests = {file_of(draft): render_document(draft.body).encode() for draft in converted.drafts}
    if len(manifests) < len(converted.drafts):
        raise RefusedError("two resources would have one file: rename one of them")
    key = f"converted:{directory}"
    state = make_state(key)
    (state / ORIGIN_FILE).write_text(f"{directory}\n", encoding="utf-8")
    commit = _commit_files(state / _REPOSITORY, manifests, make_subject(files))
    return ConvertedSource(Followed(str(find_state(key) / _REPOSITORY), _BRANCH, key=key), commit)


def _commit_files(path: Path, files: Mapping[str, bytes], subject: str) -> str:
    """Commit ``files``, and no others, to the bare repository at ``path``; returns "" where it has just these."""
    import pygit2

    try:
        repository = pygit2.init_repository(str(path), bare=True, initial_head=_BRANCH)
        return _move_branch(repository, _write_tree(repository, files), subject)
    except (pygit2.GitError, OSError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from None


def _move_branch(repository: pygit2.Repository, tree: pygit2.Oid, subject: str, attempts: int = _ATTEMPTS) -> str:
    """Commit ``tree`` to the branch; returns the commit, "" where the branch has it. Raises GitError."""
    import pygit2

    last = repository.references.get(_REF)
    if last is not None and last.peel(pygit2.Commit).tree_id == tree:
        return ""
    author = pygit2.Signature(*_AUTHOR, int(time.time()), 0)
    parents = [last.target] if last is not None else []
    try:
        return str(repository.create_commit(_REF, author, author, subject, tree, parents))
    except pygit2.GitError:
        if attempts == 1:
            raise
    return _move_branch(repository, tree, subject, attempts - 1)  # another `up` has committed meanwhile


def _write_tree(repository: pygit2.Repository, files: Mapping[str, bytes]) -> pygit2.Oid:
    import pygit2

    index = pygit2.Index()
    for path, content in files.items():
        index.add(pygit2.IndexEntry(path, repository.create_blob(content), pygit2.enums.FileMode.BLOB))
    return index.write_tree(repository)
