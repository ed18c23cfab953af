"""A short-lived process that plans one pull request: a job on standard input, the plan on standard output.

It may use little: of memory, processor time, disk and priority. A pull request can be hostile, and whatever it does to
this process, the daemon goes on.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from pathlib import Path

import msgspec
import pygit2

from reconciler.access.approvers import describe_approvers, read_approvers
from reconciler.bugs import internal_error
from reconciler.errors import ReconcilerError, SourceNotFound, SourceUnreachable
from reconciler.listing import list_paths
from reconciler.model.finding import Severity
from reconciler.notifications.forges.job import PullJob, PullPlan, decode_job
from reconciler.printable import code_span
from reconciler.private_files import make_directory
from reconciler.records.store import FILE, Records
from reconciler.render.findings import severity_counts
from reconciler.render.plan.review import PlanReview, plan_markdown
from reconciler.render.plan.summary import count_actions, format_summary
from reconciler.review.compare import plan_between
from reconciler.review.plan import plan_source
from reconciler.settings import SecretSettings, SourceSettings
from reconciler.source.libgit import open_git
from reconciler.source.mirror import Mirror
from reconciler.source.source import open_source
from reconciler.source.url import source_address

MEMORY = 4 * 1024**3
"""Bytes of address space."""
PROCESSOR_SECONDS = 600
FILE_BYTES = 512 * 1024**2
"""The most bytes of one file, so of a pack that is fetched."""
MOST_BYTES = 1024**3
"""Bytes of fetched objects that stay; above that, all are fetched anew."""
NICENESS = 10
MOST_FINDINGS = 50
MOST_MARKDOWN = 500_000
"""The most characters of a plan; each forge takes fewer."""
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_AUTHOR = pygit2.Signature("reconciler", "nobody@localhost", 0, 0)


class _NoPlan(Exception):
    """There is no plan, for a reason that people read; ``is_passing``: later there may be one."""

    def __init__(self, problem: str, *, is_passing: bool = False) -> None:
        super().__init__(problem)
        self.is_passing = is_passing


def plan_pull_request(job: PullJob) -> PullPlan:
    """The plan of ``job``. What is wrong with the pull request or its source is the ``problem`` of the plan."""
    source = next((source for source in job.settings.sources if source.name == job.source), None)
    if source is None:
        return PullPlan(problem=f"the settings have no source {job.source}")
    try:
        return _plan_merge(job, source)
    except _NoPlan as no_plan:
        return PullPlan(head=job.head, problem=str(no_plan), is_passing=no_plan.is_passing)
    except SourceUnreachable as error:
        return PullPlan(problem=str(error), is_passing=True)
    except ReconcilerError as error:
        return PullPlan(head=job.head, problem=str(error))


def _plan_merge(job: PullJob, source: SourceSettings) -> PullPlan:
    repository = open_source(source, job.settings.state).repository
    scratch = _prepare_scratch(job.settings.state, source.name, repository.commondir)
    base = repository.resolve().commit
    head = _find_head(job, source, scratch)
    merged = _merge_commits(scratch, base, head, source.branch)
    own = msgspec.structs.replace(source, url=str(scratch), branch="", tag="", commit=merged, verify=None)
    records = Records.open(job.settings.state / FILE, read_only=True)
    try:
        row = records.sources.get(source.name)
        applied = row.commit if row is not None else base
        if job.is_fork:
            # Without the identity, encrypted secrets are compared as they are in Git.
            plain = SecretSettings(policy=job.settings.secrets.policy)
            settings = msgspec.structs.replace(job.settings, secrets=plain)
            review = plan_between(settings, own, applied, merged, blame=False)
        else:
            review = plan_source(job.settings, own, records, merged, blame=False, first=False)
        waits = review.plan is not None and count_actions(review.plan)["waiting"] > 0
        who = describe_approvers(read_approvers(records, job.settings), code_span) if waits else ""
    finally:
        records.close()
    return _describe_review(job, review, PullPlan(head=head, base=base, applied=applied, approvers=who))


def _describe_review(job: PullJob, review: PlanReview, revisions: PullPlan) -> PullPlan:
    """``revisions`` with what ``review`` says."""
    findings = tuple(finding for finding in review.findings if finding.severity is not Severity.NOTICE)
    named = f"pull request {job.number}@sha1:{revisions.head}"
    plan = review.plan
    if plan is not None:
        # What is not merged cannot be approved.
        plan = msgspec.structs.replace(plan, revision=named, hold_digest="")
        review = msgspec.structs.replace(review, plan=plan, approvers=None)
    return msgspec.structs.replace(
        revisions,
        markdown=_cut_lines(plan_markdown(review)),
        summary=format_summary(plan) if plan is not None else f"refused: {severity_counts(findings)}",
        changes=len(plan.steps) if plan is not None else 0,
        waiting=count_actions(plan)["waiting"] if plan is not None else 0,
        has_errors=review.has_errors,
        findings=findings[:MOST_FINDINGS],
    )


def _cut_lines(text: str) -> str:
    """``text``, or its first lines where it is far longer than any comment."""
    if len(text) <= MOST_MARKDOWN:
        return text
    return text[:MOST_MARKDOWN].rpartition("\n")[0]


def _prepare_scratch(state: Path, name: str, owner: Path) -> Path:
    """A repository for what pull requests bring, beside the one of the source, whose objects it borrows."""
    scratch = state / "forges" / f"{name}.git"
    if sum(path.stat().st_size for path in list_paths(scratch / "objects" / "pack", "*")) > MOST_BYTES:
        shutil.rmtree(scratch)
    if not (scratch / "HEAD").is_file():
        make_directory(scratch)
        pygit2.init_repository(str(scratch), bare=True)
    (scratch / "objects" / "info").mkdir(exist_ok=True)
    (scratch / "objects" / "info" / "alternates").write_text(f"{owner / 'objects'}\n")
    return scratch


def _find_head(job: PullJob, source: SourceSettings, scratch: Path) -> str:
    """The full commit of the head, fetched if it is not there. Raises SourceError and _NoPlan."""
    # Both are words of a forge.
    if not _COMMIT.fullmatch(job.head) or not (not job.fetch or pygit2.reference_is_valid_name(job.fetch)):
        raise _NoPlan("the forge names its commit or its ref in no form that Git knows")
    git = open_git(scratch)
    try:
        return str(git.revparse_single(job.head).peel(pygit2.Commit).id)
    except (KeyError, ValueError, pygit2.GitError):
        pass
    if not job.fetch:
        raise _NoPlan("this forge gives no commits of forks away, so there is no plan of it")
    if source.local:
        raise _NoPlan(f"its commit is not in {source.url}", is_passing=True)
    fetched = Mirror(source, source_address(source), scratch).fetch_ref(job.fetch)
    if not fetched:
        raise _NoPlan(f"the forge has no {job.fetch} (any more)", is_passing=True)
    return fetched


def _merge_commits(scratch: Path, base: str, head: str, branch: str) -> str:
    """The commit that merging ``head`` into ``base`` makes. Raises SourceError and _NoPlan."""
    git = open_git(scratch)
    try:
        if git.merge_base(pygit2.Oid(hex=base), pygit2.Oid(hex=head)) == pygit2.Oid(hex=base):
            return head
        index = git.merge_commits(pygit2.Oid(hex=base), pygit2.Oid(hex=head))
        if index.conflicts is not None:
            raise _NoPlan(f"it has conflicts with {branch}; merge that into it first")
        tree = index.write_tree(git)
        parents = [pygit2.Oid(hex=base), pygit2.Oid(hex=head)]
        return str(git.create_commit(None, _AUTHOR, _AUTHOR, "merged for a plan", tree, parents))
    except (KeyError, ValueError, pygit2.GitError) as fault:
        raise SourceNotFound(f"it cannot be merged into {branch}: {fault}") from None


def _limit_process() -> None:
    """Take the limits of this module; the processes that this one starts have them too."""
    os.nice(NICENESS)
    for which, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (bound, bound))


def main() -> None:
    """Answer the job on standard input."""
    answer = os.dup(1)
    os.dup2(2, 1)  # Whatever else writes there would spoil the answer.
    _limit_process()
    try:
        plan = plan_pull_request(decode_job(sys.stdin.buffer.read()))
    except MemoryError:
        plan = PullPlan(problem="planning it needs more memory than it may have")
    except Exception as error:  # noqa: BLE001 - the comment says that there is no plan, the log why
        internal_error(error, "pull request")
        plan = PullPlan(problem="planning it met a bug of this program; see the log")
    with open(answer, "wb") as out:
        out.write(msgspec.json.encode(plan))


if __name__ == "__main__":
    main()
