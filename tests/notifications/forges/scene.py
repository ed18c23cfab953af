"""A forge with pull requests of a source whose first commit is applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reconciler.clock import SystemClock
from reconciler.notifications.forges.followed import FollowedSource
from reconciler.notifications.forges.follower import PullFollower
from reconciler.notifications.forges.job import PullJob, PullPlan
from reconciler.review.pull_request import plan_pull_request
from reconciler.settings.forges import PullRequestSettings
from tests.notifications.forges.setup import make_set, make_settings
from tests.notifications.forges.stub_forge import Failure, Request, StubForge, make_pull
from tests.support.git import File
from tests.support.pipeline import BASE, PipelineHarness
from tests.support.sandbox import workload

FILES: dict[str | bytes, File] = {"shop/gvc.yaml": BASE, "shop/api.yaml": workload("api")}


class Scene:
    """A forge with pull requests, and the follower of the source ``shop``."""

    def __init__(self, stub: StubForge, shop: PipelineHarness, directory: Path, **changes: object) -> None:
        self.stub = stub
        self.shop = shop
        self.base = shop.repo.git("rev-parse", "main")
        settings = make_settings(stub.kind, stub.url, directory, **changes)
        follow = settings.pull_requests or PullRequestSettings()
        self.set = make_set(settings)
        of = FollowedSource(shop.settings, shop.settings.sources[0], self.set.forges["shop"], settings, follow)
        self._of = of
        self.follower = PullFollower(of, SystemClock(), self._plan)
        self.plans = 0

    async def _plan(self, job: PullJob) -> PullPlan:
        self.plans += 1
        return plan_pull_request(job)

    def restart(self) -> None:
        """A new follower, as after a crash."""
        self.follower = PullFollower(self._of, SystemClock(), self._plan)

    def push(self, number: int, name: str = "web", *, fork: bool = False, parent: str = "") -> str:
        """One more commit of a pull request."""
        files: dict[str | bytes, File] = {f"shop/{name}.yaml": workload(name)}
        head = self.shop.repo.commit(files, branch=f"change-{number}", parent=parent or self.base)
        self.stub.pulls[number] = make_pull(self.stub.kind, number, head, fork=fork)
        return head

    def body(self, number: int) -> str:
        """The one comment on a pull request."""
        [body] = self.stub.comments[number].values()
        return body


def refuse_comments(stub: StubForge, number: int, status: int) -> Callable[[Request], Failure | None]:
    """What a forge does to all requests about the comments of the pull request ``number``."""

    def refuse(request: Request) -> Failure | None:
        own = [f"/comments/{comment}" for comment in stub.comments.get(number, {})]
        is_about = f"/issues/{number}/" in request.path or any(request.path.endswith(end) for end in own)
        return Failure(status) if is_about else None

    return refuse
