"""Random changes of Git, host and commands, and runs that end anywhere, stay within what a simple model allows."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconciler.engines.context import EngineContext
from reconciler.engines.protocol import Engine, Outcome
from reconciler.engines.recorded.engine import RecordedEngine
from reconciler.errors import RefusedError, SourceError
from reconciler.model.key import Key, Kind
from reconciler.operations.commands import OperatorCommands
from reconciler.pipeline.report import Report
from reconciler.pipeline.runner import Runner
from reconciler.planning.inputs import PrunePolicy
from reconciler.planning.plan import Step
from reconciler.records.store import FILE, Records
from reconciler.settings import LocationSettings, Settings, SourceSettings
from tests.support.clock import FakeClock
from tests.support.examples import FACTOR, examples
from tests.support.git import File, GitRepo
from tests.support.pipeline import BASE

NAMES = tuple("abcde")
TROUBLES = ("break_or_mend", "force_push", "outage", "restart", "freeze_or_thaw")
Files = dict[str, str]
"""Key to the manifest that asks for it."""

GVC: Files = {"gvc/shop": BASE}
BAD = "shop/bad.yaml"


def manifest(kind: Kind, name: str, value: int, *, protected: bool) -> str:
    """A manifest of a cheap kind; ``value`` is what changes."""
    tags = f"v: '{value}', id: {name}" + (', platform/protected: "true"' if protected else "")
    spec = "spec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n" if kind is Kind.VOLUMESET else ""
    return f"kind: {kind}\nname: {name}\ntags: {{{tags}}}\n{spec}"


def path_of(key: str) -> str:
    """The file of a key."""
    return "shop/gvc.yaml" if key == "gvc/shop" else f"shop/{key.replace('/', '-')}.yaml"


class Killed(BaseException):
    """Ends a run as a power cut does: nothing catches it."""


class MortalEngine(RecordedEngine):
    """The recorded engine, at which the process ends before the step that ``fuse`` (steps left, or None) counts to."""

    fuse: int | None = None

    async def perform(self, step: Step) -> Outcome:
        if MortalEngine.fuse is not None:
            MortalEngine.fuse -= 1
            if MortalEngine.fuse < 0:
                raise Killed
        return await super().perform(step)


def mortal(context: EngineContext) -> Engine:
    """Makes them."""
    return MortalEngine(
        context.tables, context.location, context.settings.org, context.settings.endpoint_domain, context.clock
    )


class OperationsMachine(RuleBasedStateMachine):
    """One source, one host, one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.repo = GitRepo.create(self.place / "main.git")
        self.commits: dict[str, tuple[Files, bool]] = {}
        self.suspended: set[str] = set()
        self.orphans: set[str] = set()
        self.frozen = self.approved = False
        MortalEngine.fuse = None
        self.pin = self.tip = self.good = ""
        self.clock = FakeClock(auto=True)
        places = {place: LocationSettings("recorded") for place in ("here", "there")}
        source = SourceSettings(name="main", url=str(self.repo.path), branch="main")
        self.settings = Settings(org="acme", sources=(source,), locations=places, state=self.place)

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.records.close()
        shutil.rmtree(self.place)

    @initialize()
    def begin(self) -> None:
        """A GVC that is applied."""
        self._commit(GVC, bad=False, parent=None)
        self._start()
        assert self._run().outcome == "applied"
        self.good = self.tip

    # What people do to Git.

    @rule(
        kind=st.sampled_from([Kind.IDENTITY, Kind.VOLUMESET]),
        value=st.integers(0, 1),
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        protected=st.sampled_from([0, 0, 1]),
    )
    def write(self, kind: Kind, names: set[str], value: int, protected: int) -> None:
        """New or changed manifests."""
        contents, bad = self.commits[self.tip]
        fresh = {f"{kind}/shop/{name}": manifest(kind, name, value, protected=bool(protected)) for name in names}
        self._commit(contents | fresh, bad=bad, parent=self.tip)

    @precondition(lambda self: len(self.commits[self.tip][0]) > 1)
    @rule(data=st.data())
    def take_away(self, data: st.DataObject) -> None:
        """Manifests that go."""
        contents, bad = self.commits[self.tip]
        gone = data.draw(st.sets(st.sampled_from(sorted(contents.keys() - GVC.keys())), min_size=1))
        self._commit({key: text for key, text in contents.items() if key not in gone}, bad=bad, parent=self.tip)

    def break_or_mend(self, _data: st.DataObject) -> None:
        """A file that cannot be read, or its end."""
        contents, bad = self.commits[self.tip]
        self._commit(contents, bad=not bad, parent=self.tip)

    def force_push(self, data: st.DataObject) -> None:
        """The branch moves to some other commit there ever was."""
        self.tip = data.draw(st.sampled_from(sorted(self.commits)))
        self.repo.git("update-ref", "refs/heads/main", self.tip)

    @rule()
    def put_right(self) -> None:
        """Repair what stops runs: the history, the broken file, the suspended source."""
        self._commit(self.commits[self.tip][0], bad=False, parent=self._last() or self.tip)
        if self.frozen:
            self.freeze_or_thaw()

    @rule(
        trouble=st.sampled_from(["break_or_mend", "force_push", "outage", "restart", "freeze_or_thaw"]), data=st.data()
    )
    def meet(self, trouble: str, data: st.DataObject) -> None:
        """A random fault."""
        getattr(self, trouble)(data)

    # What happens to the host.

    def outage(self, data: st.DataObject) -> None:
        """A run while the repository is away, or its branch, or every manifest on it, changes nothing."""
        before = self._recorded()
        with data.draw(st.sampled_from([self._repository_away, self._branch_away, self._manifests_away]))():
            self.runner = Runner(self.settings, self.records, self.clock, {"recorded": mortal})
            ended = asyncio.run(self.runner.run("main", "test"))
        # A source that is pinned to a commit needs no branch.
        assert ended.outcome in ("unreadable", "suspended") or self.pin
        assert self._recorded() == before

    @contextmanager
    def _repository_away(self) -> Iterator[None]:
        away = self.place / "away"
        self.repo.path.rename(away)
        yield
        away.rename(self.repo.path)

    @contextmanager
    def _branch_away(self) -> Iterator[None]:
        self.repo.git("update-ref", "-d", "refs/heads/main")
        yield
        self.repo.git("update-ref", "refs/heads/main", self.tip)

    @contextmanager
    def _manifests_away(self) -> Iterator[None]:
        self.repo.commit({"README.md": "Nothing here."}, whole=True, parent=self.tip)
        yield
        self.repo.git("update-ref", "refs/heads/main", self.tip)

    def restart(self, _data: st.DataObject) -> None:
        """The daemon begins anew with what is on the disk."""
        self.records.close()
        self._start()

    @rule(steps=st.integers(0, 2))
    def power_cut(self, steps: int) -> None:
        """The next run that has so much to do ends in the middle, and the process is started again."""
        MortalEngine.fuse = steps

    # Commands of operators.

    @rule(name=st.sampled_from(NAMES))
    def suspend(self, name: str) -> None:
        """Leave a resource as it is."""
        self._request(
            lambda verbs: verbs.suspend(f"identity/shop/{name}", "", None), self.suspended, f"identity/shop/{name}"
        )

    @precondition(lambda self: self.suspended)
    @rule()
    def resume(self) -> None:
        """Go on with what was suspended."""
        self._operations().resume(self.suspended.pop())

    def freeze_or_thaw(self, _data: st.DataObject | None = None) -> None:
        """Suspend the source, or go on with it."""
        if self.frozen:
            self._operations().resume("main")
            self.pin = ""
        else:
            self._operations().suspend("main", "", None)
        self.frozen = not self.frozen

    @precondition(lambda self: not self.frozen)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Hold the source at some commit, or let it go."""
        if self.pin:
            self._operations().resume("main")
            self.pin = ""
        else:
            self.pin = data.draw(st.sampled_from(sorted(self.commits)))
            operations = self._operations()
            operations.rollback(operations.rollback_target("main", self.pin, force=True), "")

    @precondition(lambda self: len(self.commits[self.tip][0]) > 1)
    @rule(data=st.data())
    def orphan(self, data: st.DataObject) -> None:
        """Never delete a resource."""
        key = data.draw(st.sampled_from(sorted(self.commits[self.tip][0].keys() - GVC.keys())))
        self._request(lambda verbs: verbs.orphan(Key.parse(key)), self.orphans, key)

    @rule()
    def approve(self) -> None:
        """Approve what waits."""
        try:
            plan = self.runner.pipelines["main"].plan_revision().plan
        except SourceError:
            return
        if plan is not None and plan.hold_digest:
            self.records.approvals.approve(f"main/{plan.hold_digest}", "ada")
            self.approved = True

    # Comparison with the model.

    @invariant()
    def a_run_does_what_is_allowed(self) -> None:
        """One run, and nothing in it that is not allowed; then another, which finds nothing to do."""
        if not self.good:
            return
        if MortalEngine.fuse is not None:
            self._cut()
        before = self._recorded()
        ended = self._run()
        after = self._recorded()
        if not self._readable():
            assert (after, ended.good) == (before, False)
            return
        self.good = self.pin or self.tip
        self._hold_against_the_model(before, after)
        for key in self.commits[self.good][0].keys() - self.suspended:
            assert after[key] == self.commits[self.good][0][key], key
        if ended.good:
            again = self.runner.pipelines["main"].plan_revision().plan
            assert again is not None
            assert again.steps == ()
        self.approved = False

    def _cut(self) -> None:
        """A run that may end in the middle: it did nothing that it may not."""
        before = self._recorded()
        try:
            self._run()
        except Killed:
            MortalEngine.fuse = None
            self.records.close()
            self._start()
        self._hold_against_the_model(before, self._recorded())

    def _hold_against_the_model(self, before: Files, after: Files) -> None:
        """Nothing went, and nothing of what is suspended was touched, that the model does not allow."""
        if not self._readable():
            assert after == before
            return
        expected = self.commits[self.pin or self.tip][0]
        gone = before.keys() - after.keys()
        assert not gone & (expected.keys() | self.suspended | self.orphans)
        assert not any("platform/protected" in before[key] for key in gone)
        if not self.approved:
            assert len(gone) <= PrunePolicy().allowance(len(before))
            assert not any(key.startswith("volumeset/") for key in gone)
        for key in self.suspended & before.keys():
            assert after.get(key) == before[key]
        for key in (key for key in after if after[key] != before.get(key)):
            assert after[key] == expected.get(key), key

    def _readable(self) -> bool:
        """Whether a run may change anything: Git is sound, continues the applied history, and is not suspended."""
        at = self.pin or self.tip
        follows = bool(self.pin) or self._contains(self.tip, self._last())
        return not self.frozen and follows and not self.commits[at][1]

    def _last(self) -> str:
        """The commit that a new one of the branch has to contain, whatever the source was pinned to."""
        return self.records.sources.followed_commit("main", "refs/heads/main")

    def _contains(self, newer: str, older: str) -> bool:
        return not older or self.repo.git("merge-base", newer, older).strip() == older

    def _commit(self, contents: Files, bad: bool, parent: str | None) -> None:
        files: dict[str | bytes, File] = {path_of(key): text for key, text in contents.items()}
        if bad:
            files[BAD] = "kind: [\n"
        self.tip = self.repo.commit(files, whole=True, parent=parent or "")
        self.repo.git("update-ref", "refs/heads/main", self.tip)
        self.commits[self.tip] = (dict(contents), bad)

    def _start(self) -> None:
        self.records = Records.open(self.place / FILE, clock_now=self.clock.now)
        self.runner = Runner(self.settings, self.records, self.clock, {"recorded": mortal})
        asyncio.run(self.runner.open())

    def _run(self) -> Report:
        return asyncio.run(self.runner.run("main", "test"))

    def _operations(self) -> OperatorCommands:
        return OperatorCommands(self.settings, self.records, self.clock, "ada")

    def _request(self, verb: Any, noted: set[str], key: str) -> None:
        try:
            verb(self._operations())
        except RefusedError:
            return
        noted.add(key)

    def _recorded(self) -> Files:
        """The recorded resources, as manifests that declare them."""
        files: Files = {}
        for record in self.records.applied.items():
            body = msgspec.json.decode(record.body)
            kind, name, tags = record.key.kind, record.key.name, body["tags"]
            if kind is Kind.GVC:
                files["gvc/shop"] = BASE
            else:
                protected = tags.get("platform/protected") == "true"
                files[str(record.key)] = manifest(kind, name, int(tags["v"]), protected=protected)
        return files


OperationsMachine.TestCase.settings = settings(
    max_examples=examples(40) if FACTOR else 6, stateful_step_count=20, deadline=None
)
TestOperating = OperationsMachine.TestCase
