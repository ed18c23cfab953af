"""Commands of operators: suspend, resume, roll back, retry, restart, hold, adopt, orphan. Each is a row and an event.

A wake-up notifies a running daemon; otherwise the next run reads the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.engines.plugin import EnginePlugin, find_plugin, is_holding_engine, is_running_engine, name_engines
from reconciler.errors import NotFoundError, RefusedError, UsageError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import options_at, read_specification
from reconciler.model.record import Record
from reconciler.model.revision import Revision, explain_expression
from reconciler.operations.data_rollback import RollbackTarget, cancel_restores, find_restores, request_restores
from reconciler.queries.existence import check_present, find_source
from reconciler.reasons import Reason
from reconciler.records.reserve import retry_with_reserve
from reconciler.records.store import Records
from reconciler.records.tables.runs import KEEP
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings
from reconciler.status.waiting import mark_status_dirty
from reconciler.times import format_iso_time

if TYPE_CHECKING:
    from reconciler.pipeline.source_pipeline import SourcePipeline

PREVIOUS = "--previous"
"""Stands for the last good revision before the one that is applied."""
LONGEST_HOLD = 3600.0
"""Seconds: clients give up long before, and more and more requests are refused."""


class OperatorCommands:
    """Commands on one set of records; ``by`` names the operator. Each returns the message for the operator.

    All raise RefusedError if the target does not exist, and RecordsError.
    """

    def __init__(self, settings: Settings, records: Records, clock: Clock, by: str) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._by = by

    def suspend(self, target: str, reason: str, until: float | None) -> str:
        """Suspend a source or a resource until ``until`` (seconds since the epoch; None: until resumed)."""
        name = self._target(target)
        end = f" until {format_iso_time(until)}" if until is not None else ""
        with self._recorded_as_event(name, Reason.SUSPENDED, f"{self._by}{end}{_reason_suffix(reason)}"):
            self._records.suspensions.put(name, reason, self._by, until)
            mark_status_dirty(self._records, name)
        return f"{target} is suspended{end}; resume it: reconciler resume {target}"

    def resume(self, target: str) -> str:
        """End the suspension of ``target``, and let a source that was rolled back follow its branch again."""
        name = self._target(target)
        with self._recorded_as_event(name, Reason.RESUMED, self._by):
            was = self._records.suspensions.remove(name)
            if name == source_target(target):
                was |= self._records.pins.remove(target)
                cancel_restores(self._records, target, self._by)
            if not was:
                raise RefusedError(f"{target} is neither suspended nor rolled back")
            mark_status_dirty(self._records, name)
        return f"{target} is resumed"

    def rollback_target(self, source: str, expression: str, *, force: bool = False) -> RollbackTarget:
        """The revision ``expression``, PREVIOUS being the last good one before the applied one, and its data.

        Raises SourceError if there is none, RefusedError if the source never followed it, unless ``force``.
        """
        pipeline = self._pipeline(source)
        pipeline.source.refresh()
        if expression == PREVIOUS:
            revision = self._previous(pipeline)
        else:
            revision = pipeline.revisions.resolve(expression)
            if not force:
                _refuse_unfollowed(pipeline, revision, expression)
        restores = find_restores(self._records, pipeline.source.repository, source, revision.commit)
        return RollbackTarget(source, expression, revision, restores)

    def rollback(self, target: RollbackTarget, reason: str, *, with_data: bool = False) -> str:
        """Pin the source to ``target``, and restore its volumes ``with_data``."""
        source, expression, revision = target.source, target.expression, target.revision
        short = revision.commit[:12]
        restores = target.restores if with_data else []
        data = f" with {len(restores)} volume{'s' if len(restores) > 1 else ''}" if restores else ""
        message = f"{self._by}: {explain_expression(expression, revision.commit)}{data}"
        with self._recorded_as_event(source_target(source), Reason.ROLLED_BACK, message):
            self._records.pins.put(source, revision.commit, expression, reason, self._by)
            cancel_restores(self._records, source, self._by)
            request_restores(self._records, source, revision.commit, restores, self._by)
        again = f"follow the branch again: reconciler resume {source}"
        return f"{source} is rolled back to {short} ({revision.subject}){data}; {again}"

    def _previous(self, pipeline: SourcePipeline) -> Revision:
        """The last fully applied revision before the applied one."""
        applied = pipeline.revisions.applied_commit()
        repository = pipeline.source.repository
        commits = (run.commit for run in self._records.runs.list(KEEP, pipeline.name) if run.outcome == "applied")
        for commit in dict.fromkeys(commits) if applied else ():
            if commit != applied and repository.contains(applied, commit):
                return pipeline.revisions.resolve(commit)
        name = pipeline.name
        raise RefusedError(
            f"no earlier revision of {name} is recorded as applied; name one: reconciler rollback {name} REV"
        )

    def retry(self, key: Key) -> str:
        """Retry the failed steps of ``key`` at once, and heal its repeated drift again."""
        check_present(self._records, key)
        with self._recorded_as_event(str(key), Reason.RETRY_REQUESTED, self._by):
            count = self._records.failures.retry_now(key, self._clock.now())
            if not count + self._records.heal_counts.forget(key):
                raise RefusedError(f"nothing of {key} has failed; see: reconciler describe {key}")
        return f"{key} is retried"

    def restart(self, key: Key) -> str:
        """Replace the replicas of ``key`` by new ones of the same version, following its rolloutOptions."""
        records = running_here(self._settings, self._records, key, "replicas to restart")
        _check_suspended(self._records, key, records[0].source)
        places = [record.location for record in records]
        with self._recorded_as_event(str(key), Reason.RESTART_REQUESTED, self._by):
            self._records.restarts.request(key, self._by)
        return f"{key} is restarted at {', '.join(places)}, replica by replica; see: reconciler top --gvc {key.gvc}"

    def hold(self, key: Key, seconds: float, reason: str) -> str:
        """Make new requests to ``key`` wait for ``seconds``; replaces an earlier hold."""
        if seconds <= 0:
            raise UsageError("requests are held for a time above 0, such as 60s")
        if seconds > LONGEST_HOLD:
            raise RefusedError(f"requests are held for at most {LONGEST_HOLD / 3600:g} h; to stop a workload: suspend")
        [record, *_] = running_here(self._settings, self._records, key, "requests to hold", is_holding_engine)
        if not any(container.ports for container in read_specification(record.body).containers):
            raise RefusedError(f"{key} declares no port: no requests reach it")
        until = self._clock.now() + seconds
        message = f"{self._by} until {format_iso_time(until)}{_reason_suffix(reason)}"
        with self._recorded_as_event(str(key), Reason.HOLDING_REQUESTS, message):
            self._records.traffic_holds.put(key, reason, self._by, until)
            mark_status_dirty(self._records, str(key))
        return (
            f"new requests to {key} wait until {format_iso_time(until)}; release them: reconciler hold {key} --release"
        )

    def release(self, key: Key) -> str:
        """End the hold of requests to ``key`` now."""
        with self._recorded_as_event(str(key), Reason.REQUESTS_RELEASED, self._by):
            if not self._records.traffic_holds.remove(key):
                check_present(self._records, key)
                raise RefusedError(f"the requests to {key} are not held")
            mark_status_dirty(self._records, str(key))
        return f"requests to {key} are released"

    def orphan(self, key: Key) -> str:
        """Make ``key`` an orphan: it stays when it leaves Git."""
        self._target(str(key))
        with self._recorded_as_event(str(key), Reason.ORPHANED, self._by):
            self._records.orphans.put(key, self._by)
        return f"{key} stays when it is removed from Git; manage it again: reconciler adopt {key}"

    def adopt(self, key: Key, source: str = "") -> str:
        """Make an orphan a normal resource again, or make ``source`` the owner of a resource of a removed source."""
        self._target(str(key))
        records = self._records.applied.get(key)
        owner = records[0].source if records else ""
        with self._recorded_as_event(str(key), Reason.ADOPTED, self._by):
            was = self._records.orphans.remove(key)
            if owner not in self._sources() and records:
                taker = self._new_owner(source)
                self._transfer([str(key)], taker)
                return f"{key} belongs to the source {taker}, which deletes it unless it is in its Git"
            if not was:
                raise RefusedError(f"{key} is no orphan: the source {owner} owns it")
        return f"{key} is deleted when it is removed from Git"

    def adopt_all(self, gone: str, source: str = "") -> str:
        """Make ``source`` the owner of all resources of ``gone``, a source removed from the settings."""
        if gone in self._sources():
            raise RefusedError(f"the source {gone} is in the settings, and owns what it applied")
        keys = list(dict.fromkeys(row[0] for row in self._records.applied.scan(gone)))
        if not keys:
            raise RefusedError(f"no source {gone!r} has any resources here")
        taker = self._new_owner(source)
        count = f"{len(keys)} resource{'s' if len(keys) > 1 else ''}"
        with self._recorded_as_event(source_target(taker), Reason.ADOPTED, f"{self._by}: {count} of the source {gone}"):
            self._transfer(keys, taker)
        return f"{count} of {gone} belong to the source {taker}, which deletes those that are not in its Git"

    def _transfer(self, keys: list[str], taker: str) -> None:
        self._records.applied.adopt(taker, keys)
        self._records.status_queue.add_many(taker, keys)

    def _sources(self) -> list[str]:
        return [source.name for source in self._settings.sources]

    def _new_owner(self, source: str) -> str:
        """The source called ``source``, or the only one."""
        names = self._sources()
        if source in names or (not source and len(names) == 1):
            return source or names[0]
        wrong = f"there is no source {source!r}; " if source else ""
        raise RefusedError(f"{wrong}name its new source with --source: {', '.join(names)}")

    def _target(self, text: str) -> str:
        """The target of a suspension: a source, or a key that is desired or recorded."""
        if any(source.name == text for source in self._settings.sources):
            return source_target(text)
        try:
            key = Key.parse(text)
        except ValueError as error:
            there = ", ".join(self._sources())
            raise NotFoundError(f"there is no source {text!r}; the settings have {there}; and {error}") from None
        check_present(self._records, key)
        return str(key)

    def _pipeline(self, source: str) -> SourcePipeline:
        from reconciler.pipeline.source_pipeline import SourcePipeline  # few commands read Git

        return SourcePipeline(self._settings, find_source(self._settings, source), self._records, self._clock)

    @contextmanager
    def _recorded_as_event(self, key: str, reason: Reason, message: str) -> Iterator[None]:
        """Commit the writes of the block and their event in one transaction."""
        with self._records.transaction():
            yield
            self._records.events.append(key, reason, message)


def run_operator_command(settings: Settings, clock: Clock, by: str, verb: Callable[[OperatorCommands], str]) -> str:
    """Carry out ``verb`` on the records of ``settings``; returns the message for the operator."""
    with open_existing(settings, clock) as records:
        commands = OperatorCommands(settings, records, clock, by)
        return retry_with_reserve(records.reserve, lambda: verb(commands))


@contextmanager
def open_existing(settings: Settings, clock: Clock) -> Iterator[Records]:
    """The records of ``settings``, for writing. Raises RecordsError if there are none."""
    with closing(Records.open_existing(settings.state, clock)) as records:
        yield records


def _refuse_unfollowed(pipeline: SourcePipeline, revision: Revision, expression: str) -> None:
    """Raise RefusedError if ``revision`` is no ancestor of the commits that the source followed."""
    followed = (
        pipeline.revisions.followed_commit() or pipeline.revisions.applied_commit() or pipeline.source.revision().commit
    )
    repository = pipeline.source.repository
    if repository.holds(followed) and repository.contains(followed, revision.commit):
        return
    raise RefusedError(
        f"{expression} is {revision.commit[:12]} ({revision.subject}), which {pipeline.name} never followed: it is no "
        f"ancestor of {followed[:12]}; name one that `reconciler history` lists, or add --force"
    )


def _reason_suffix(reason: str) -> str:
    return f": {reason}" if reason else ""


def running_here(
    settings: Settings,
    records: Records,
    key: Key,
    what: str,
    takes: Callable[[EnginePlugin], bool] = is_running_engine,
) -> list[Record]:
    """The records of ``key`` at locations where it has ``what`` ("replicas to restart"). Raises RefusedError.

    ``takes`` accepts the engines that can have it.
    """
    nothing = f"there is nothing to {what.split()[-1]}"
    if key.kind is not Kind.WORKLOAD:
        raise RefusedError(f"{key} is no workload; only workloads have {what}")
    applied = records.applied.get(key)
    if not applied:
        check_present(records, key)
        raise RefusedError(f"{key} is not applied yet; {nothing}")
    spec = read_specification(applied[0].body)
    if spec.type == "cron":
        raise RefusedError(f"{key} runs on a schedule: there are executions of it, and no {what}")
    here = [record for record in applied if _runs_here(settings, record, takes)]
    if not here:
        raise RefusedError(f"{key} runs nowhere with the engine {name_engines(takes)}; {_describe_locations(applied)}")
    running = [record for record in here if not options_at(spec, record.location).suspend]
    if not running:
        raise RefusedError(f"{key} is stopped by `suspend` in its options; {nothing}")
    return running


def _check_suspended(records: Records, key: Key, source: str) -> None:
    for target, name in ((str(key), str(key)), (source_target(source), source)):
        if records.suspensions.get(target) is not None:
            raise RefusedError(f"{name} is suspended; resume it first: reconciler resume {name}")


def _runs_here(settings: Settings, record: Record, takes: Callable[[EnginePlugin], bool]) -> bool:
    bound, plugin = settings.locations.get(record.location), find_plugin(record.engine)
    return bound is not None and bound.engine == record.engine and plugin is not None and takes(plugin)


def _describe_locations(records: tuple[Record, ...]) -> str:
    """``it is at here (recorded), there (recorded)``."""
    places = [f"{record.location} ({record.engine})" for record in records if record.location]
    return f"it is at {', '.join(places)}" if places else "this host binds none of its locations"
