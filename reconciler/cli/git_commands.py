"""Git as people run it, in their own repositories: with their configuration, their hooks and their name."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from reconciler.errors import RefusedError, UsageError


def run_git(directory: Path, *words: str) -> str:
    """Run git in ``directory``; returns its output. Raises RefusedError with its message, UsageError without git."""
    ran = _call_git(directory, *words)
    if ran.returncode:
        raise RefusedError(f"git {_find_verb(words)} failed in {directory}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout.strip()


def make_repository(directory: Path, message: str) -> None:
    """Make ``directory`` a repository with one commit of all its files. Raises RefusedError and UsageError."""
    run_git(directory, "init", "--quiet", "--initial-branch=main")
    run_git(directory, "add", "--all")
    run_git(directory, *_list_author_options(directory), "commit", "--quiet", "--no-verify", f"--message={message}")


def find_work_tree(directory: Path) -> Path:
    """The work tree that ``directory`` is in. Raises UsageError where there is none."""
    ran = _call_git(directory, "rev-parse", "--show-toplevel")
    if ran.returncode:
        raise UsageError(f"{directory} is in no work tree of Git: git init {directory}")
    return Path(ran.stdout.strip())


def refuse_staged(work_tree: Path) -> None:
    """Raise RefusedError where the index has changes of somebody else, which a commit would take along."""
    if staged := run_git(work_tree, "diff", "--cached", "--name-only", "--no-renames").splitlines():
        more = f" and {len(staged) - 1} more" if staged[1:] else ""
        raise RefusedError(
            f"{staged[0]}{more} is staged in {work_tree}, and a commit would take it along: commit it first, or "
            "`git restore --staged .`"
        )


def commit_files(work_tree: Path, paths: Sequence[str], message: str) -> str:
    """Commit ``paths`` of ``work_tree``, with its hooks; returns the commit, "" where they are committed already.

    Raises RefusedError, with the message of Git or of a hook.
    """
    run_git(work_tree, "add", "--force", "--", *paths)
    if not run_git(work_tree, "diff", "--cached", "--name-only"):
        return ""
    run_git(work_tree, *_list_author_options(work_tree), "commit", "--quiet", f"--message={message}")
    return run_git(work_tree, "rev-parse", "HEAD")


def _call_git(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("git is not installed; install it and try again") from error


def _find_verb(words: Sequence[str]) -> str:
    return next(word for word in words if word.isalpha())


def _list_author_options(directory: Path) -> list[str]:
    """Options that name an author where the user has set none in Git."""
    is_known = _call_git(directory, "var", "GIT_AUTHOR_IDENT").returncode == 0
    return [] if is_known else ["-c", "user.name=reconciler", "-c", "user.email=reconciler@localhost"]
