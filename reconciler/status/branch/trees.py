"""Applies file changes to a Git tree with objects only: no index, no work tree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

from reconciler.errors import ReconcilerError, SourceError
from reconciler.source.git_command import borrowed_objects
from reconciler.source.libgit import lookup_name
from reconciler.status.branch.owner import file_access_of, owner_of

File = tuple[str, bytes | None]
"""A path and its content; None deletes the file."""

Nested = dict[str, "bytes | Nested | None"]

FEW = 200
"""Up to this many files are written as loose objects; more go into one pack."""

_PIPE = subprocess.PIPE
_IMPORT_REF = "refs/reconciler/import"


class LazyFiles:
    """Many files, rendered while the first of them are already written, and again if they must be written again.

    They are not kept: the status of 100,000 resources takes 80 MB.
    """

    def __init__(self, render: Callable[[], Iterator[File]]) -> None:
        self._render = render

    def items(self) -> Iterator[File]:
        """Every file. Raises the errors of rendering, and never those of Git."""
        try:
            yield from self._render()
        except ReconcilerError:
            raise
        except Exception as error:
            raise RuntimeError("a status file cannot be rendered") from error


Changes = Mapping[str, bytes | None] | LazyFiles
"""Files by path."""


def write_tree(git: pygit2.Repository, tree: pygit2.Tree | None, changes: Changes) -> pygit2.Oid:
    """Id of ``tree`` (None: empty) with ``changes`` applied; all other entries stay as they are.

    A file that conflicts with a directory is replaced by it, and the reverse. The deletion of a directory or of a
    missing path changes nothing. Raises SourceError if Git refuses.
    """
    if isinstance(changes, LazyFiles) or len(changes) > FEW:
        return _import_changes(git, tree, changes)
    with file_access_of(Path(git.path)):
        return _apply_changes(git, tree, _nest_changes(changes)) or git.TreeBuilder().write()


def _nest_changes(changes: Changes) -> Nested:
    root: Nested = {}
    for path, content in changes.items():
        *directories, name = path.split("/")
        node = root
        for directory in directories:
            below = node.get(directory)
            if isinstance(below, bytes):
                raise ValueError(f"{path} is below a path that is a file in the same change")
            if below is None:
                below = node[directory] = {}
            node = below
        if content is not None or name not in node:
            node[name] = content
    return root


def _apply_changes(git: pygit2.Repository, tree: pygit2.Tree | None, node: Nested) -> pygit2.Oid | None:
    """The new tree's id, or None if it is empty."""
    builder = git.TreeBuilder() if tree is None else git.TreeBuilder(tree)
    for name, change in node.items():
        entry = builder.get(lookup_name(name))
        old = entry if isinstance(entry, pygit2.Tree) else None
        if isinstance(change, dict):
            new = _apply_changes(git, old, change)
            if new is not None:
                builder.insert(name, new, FileMode.TREE)
            elif old is not None:
                builder.remove(lookup_name(name))
        elif change is not None:
            builder.insert(name, git.create_blob(change), FileMode.BLOB)
        elif entry is not None and old is None:
            builder.remove(lookup_name(name))
    return builder.write() if len(builder) else None


def _import_changes(git: pygit2.Repository, tree: pygit2.Tree | None, changes: Changes) -> pygit2.Oid:
    """The same through ``git fast-import``, which writes one pack instead of a file per object.

    It runs in a repository of ours that borrows the objects of ``git``, as the user who owns those.
    """
    repository = Path(git.path)
    with ExitStack() as scratch:
        with file_access_of(repository):
            environment = scratch.enter_context(borrowed_objects(repository / "objects"))
        importer = _start_import(environment, owner_of(repository))
        with importer:
            assert importer.stdin is not None
            # A fast-import that stops early reports that by its exit status, and nothing before the end of its input.
            try:
                with suppress(BrokenPipeError):
                    importer.stdin.writelines(_stream_commit(tree, changes))
            except BaseException:
                # Let it end normally: a killed fast-import would leave half a pack behind.
                importer.communicate(b"done\n")
                raise
            answer, complaint = importer.communicate()
    if importer.returncode:
        fatal = [line for line in complaint.decode(errors="replace").splitlines() if line.startswith("fatal")]
        raise SourceError(f"git fast-import failed in {git.path}: {'; '.join(fatal)}")
    return pygit2.Oid(hex=answer.split()[2].decode())


def _start_import(environment: dict[str, str], owner: tuple[int, int] | None) -> subprocess.Popen[bytes]:
    user, group = owner or (None, None)
    try:
        return subprocess.Popen(
            ("git", "-c", "pack.compression=1", "fast-import", "--quiet", "--force", "--date-format=raw"),
            cwd=environment["GIT_DIR"],
            env=environment,
            stdin=_PIPE,
            stdout=_PIPE,
            stderr=_PIPE,
            user=user,
            group=group,
            extra_groups=None if owner is None else (),
            process_group=0,  # Ctrl-C is for the daemon, which finishes what it writes
        )
    except OSError as fault:
        raise SourceError(f"git fast-import cannot be run: {fault}; is git installed?") from None


def _stream_commit(tree: pygit2.Tree | None, changes: Changes) -> Iterator[bytes]:
    """A temporary commit: only its tree is needed, which fast-import returns."""
    yield b"feature done\nreset %b\ncommit %b\n" % ((_IMPORT_REF.encode(),) * 2)
    yield b"committer reconciler <reconciler@localhost> 0 +0000\ndata 0\n"
    if tree is not None:
        yield b'M 040000 %b ""\n' % str(tree.id).encode()
    for path, content in changes.items():
        if content is not None:
            yield b"M 100644 inline %b\ndata %d\n%b\n" % (_quote_path(path), len(content), content)
        elif tree is not None and _is_file(tree, path):
            yield b"D %b\n" % _quote_path(path)
    yield b'ls ""\ndone\n'


def _is_file(tree: pygit2.Tree, path: str) -> bool:
    try:
        return not isinstance(tree[lookup_name(path)], pygit2.Tree)
    except KeyError:
        return False


def _quote_path(path: str) -> bytes:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()
