"""What this host will not enforce of a workload, and which replicas it will stop or replace; for plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from reconciler.engines.host.paths import ENGINE, find_directory
from reconciler.engines.host.runtimes.plugins import runtime_of, runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.protocol import RuntimePlugin
from reconciler.engines.plugin import ForeseenLimitation, ForeseenRefusal, ForeseenRollout, ForeseenStop, PlanTrial
from reconciler.engines.volumes import VolumeLifecycle, read_volumes
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.model.key import Kind
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.model.kinds.workload import read_specification
from reconciler.planning.plan import Action, Step
from reconciler.records.store import Records
from reconciler.settings import Settings


def foresee_limitations(settings: Settings, records: Records, steps: Iterable[Step]) -> list[ForeseenLimitation]:
    """The limitations that ``steps`` add to those of the recorded workloads; workloads with the same one share an
    entry."""
    bound = settings.locations
    hosted = {
        name: runtime_plugin(runtime_of(settings, name))
        for name, location_settings in bound.items()
        if location_settings.engine == ENGINE
    }
    limitations = sorted(
        (message, step.location, step.key)
        for step in steps
        if step.key.kind is Kind.WORKLOAD and step.location in hosted and step.action is not Action.DELETE
        for message in _new_sentences(records, step, hosted[step.location])
    )
    return [
        ForeseenLimitation(message, location, tuple(key for _, _, key in members))
        for (message, location), members in groupby(limitations, key=lambda limitation: limitation[:2])
    ]


def try_steps(settings: Settings, steps: Iterable[Step]) -> PlanTrial | None:
    """What this host refuses of ``steps``, as it is now; None if it refuses nothing."""
    hosted = [name for name, location_settings in settings.locations.items() if location_settings.engine == ENGINE]
    obstacles = {
        name: [f"{problem.message}; {problem.advice}" for problem in plugin.list_obstacles(settings)]
        for name in hosted
        for plugin in (runtime_plugin(runtime_of(settings, name)),)
    }
    refusals = [
        ForeseenRefusal(step.location, step.key, message)
        for step in steps
        if step.key.kind is Kind.WORKLOAD and step.action is not Action.DELETE
        for message in obstacles.get(step.location, ())
        if read_specification(step.body).security_options.run_as_user is None
    ]
    return PlanTrial(tuple(sorted(refusals))) if refusals else None


def foresee_stops(settings: Settings, records: Records, steps: Iterable[Step]) -> list[ForeseenStop]:
    """The replicas that stop since ``steps`` make their volumes larger, which cannot grow in use."""
    hosted = {name for name, location_settings in settings.locations.items() if location_settings.engine == ENGINE}
    return sorted(
        ForeseenStop(step.location, step.key, message)
        for step in steps
        if step.key.kind is Kind.VOLUMESET and step.location in hosted and step.action is Action.UPDATE
        for message in _list_stops(records, step)
    )


def foresee_rollouts(settings: Settings) -> list[ForeseenRollout]:
    """The workloads with replicas in another runtime than ``settings`` give their location."""
    hosted = [name for name, location_settings in settings.locations.items() if location_settings.engine == ENGINE]
    return sorted(rollout for location in hosted for rollout in _list_rollouts(settings, location))


def _list_rollouts(settings: Settings, location: str) -> Iterator[ForeseenRollout]:
    root, chosen = find_directory(settings.state, location), runtime_of(settings, location)
    for name in runtimes_in_use(root):
        if name != chosen:
            running = runtime_plugin(name).snapshot(root, location).running
            for key in {container_id.key for container_id in running}:
                yield ForeseenRollout(location, key, f"its runtime changes from {name} to {chosen}")


def _list_stops(records: Records, step: Step) -> Iterator[str]:
    past = records.applied.at(step.key, step.location)
    state, capacity = read_volumes(past.state) if past is not None else None, read_capacity(step.body)
    for volume in state.volumes if state is not None else ():
        bound = volume.lifecycle is VolumeLifecycle.BOUND
        if bound and volume.grows_detached is True and volume.current_size < capacity:
            yield (
                f"volume {volume.index} grows from {volume.current_size:g} to {capacity:g} GB, and its replica stops "
                "meanwhile: ext4 grows in use only with CAP_SYS_RESOURCE"
            )


def _new_sentences(records: Records, step: Step, runtime: RuntimePlugin) -> Iterator[str]:
    past = records.applied.at(step.key, step.location)
    former_sentences = (
        set(_list_limitations(step, past.body, runtime)) if past is not None and past.engine == step.engine else set()
    )
    return (sentence for sentence in _list_limitations(step, step.body, runtime) if sentence not in former_sentences)


def _list_limitations(step: Step, body: bytes, runtime: RuntimePlugin) -> Iterator[str]:
    spec = read_specification(body)
    applied = AppliedWorkload(step.key, step.location, spec, step.version, step.digest)
    return runtime.foreseen_limitations(workload_spec(applied, ""))
