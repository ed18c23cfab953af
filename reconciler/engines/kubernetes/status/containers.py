"""One container of a pod: its phase, its last end, and why it is not ready, in the platform's words; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from reconciler.engines.kubernetes.status.events import ClusterEvent, find_event
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    read_field,
    read_mapping,
    read_message,
    read_number,
    read_seconds,
    read_text,
)
from reconciler.engines.workload.status import START_SECONDS, describe_end
from reconciler.reasons import Reason

BACKOFF_SECONDS = 600.0
"""Seconds that a container must run until the kubelet forgets its earlier ends."""

EVENT_SECONDS = 3.0
"""Seconds that the event of a probe may come later than the status of its pod."""

_SHARED_REASONS: Mapping[str, Reason] = {
    "Completed": Reason.COMPLETED,
    "OOMKilled": Reason.OUT_OF_MEMORY,
    "ContainerCannotRun": Reason.START_FAILED,
    "StartError": Reason.START_FAILED,
    "RunContainerError": Reason.START_FAILED,
    "CreateContainerError": Reason.START_FAILED,
    "CreateContainerConfigError": Reason.START_FAILED,
    "PreCreateHookError": Reason.START_FAILED,
    "PreStartHookError": Reason.START_FAILED,
    "PostStartHookError": Reason.POST_START_FAILED,
    "InvalidImageName": Reason.INVALID_IMAGE_NAME,
    "ErrImageNeverPull": Reason.IMAGE_NOT_FOUND,
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "SignatureValidationFailed": Reason.IMAGE_PULL_FAILED,
}
"""What the kubelet calls an end, or a wait that is a failure → the reason of the platform."""

_IMAGE_REASONS = (Reason.IMAGE_PULL_FAILED, Reason.INVALID_IMAGE_NAME, Reason.IMAGE_NOT_FOUND)
_NO_SECRET = re.compile(r'(?:secret|configmap) "[^"]+" not found', re.IGNORECASE)
_NO_KEY = re.compile(r"couldn't find key ", re.IGNORECASE)
_PROBE = re.compile(r"(?P<probe>\w+) probe (?:failed|errored)[^:]*:(?P<words>.*)", re.DOTALL)
_OF_KUBELET = ("rpc error: ", "command timed out", 'command "')
"""How the words begin that the kubelet itself has about the program of a probe."""
_PULLED_LATER = re.compile(r'Back-off pulling image "[^"]*"(?:: (?:ErrImagePull: )?(?P<words>.*))?')
_PULLING = ("ErrImagePull", "ImagePullBackOff")
"""The reasons of a kubelet that tries to pull an image, or waits for its next try: they take turns."""
_NOT_PULLED = re.compile(r'Failed to pull image "[^"]*": (?P<words>.*)')
_EXIT_CODE = re.compile(r"exited with (\d+)")


class ContainerPhase(StrEnum):
    """A container waits for its (next) start, runs, or has ended."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class ContainerEnd(msgspec.Struct, frozen=True):
    """How a container ended last: its exit code, 128 and the signal if one killed it; ``at`` is 0 if it is unknown.

    It has no lines of the log, which may contain what is secret.
    """

    code: int
    reason: str
    message: str = ""
    at: float = 0.0

    @property
    def words(self) -> str:
        """The end as a text."""
        return describe_end(self.code, self.reason, self.message)


class ContainerState(msgspec.Struct, frozen=True):
    """One container of a replica at a moment; times are in seconds since the epoch, 0 for none.

    ``message`` is why it is not ready, "" if nothing is wrong. It is ``failing`` if that is no slow start, and in
    ``backoff`` while it waits after a failure. ``digest`` is that of the image that runs, "" before it is known.
    ``reason`` is set if it cannot be started. ``late_at`` is when a start counts as failing that takes long.
    """

    name: str
    phase: ContainerPhase = ContainerPhase.WAITING
    ready: bool = False
    restarts: int = 0
    message: str = ""
    failing: bool = False
    backoff: bool = False
    started: float = 0.0
    last: ContainerEnd | None = None
    image: str = ""
    digest: str = ""
    reason: str = ""
    late_at: float = 0.0

    @property
    def lacks_image(self) -> bool:
        """Whether it cannot be started for its image."""
        return self.reason in _IMAGE_REASONS


class ContainerInput(msgspec.Struct, frozen=True):
    """What is known of the container ``name``: its ``part`` of the pod, its ``status``, and its events.

    ``ready_changed`` is when the pod became ready or unready last, and ``now`` the time, in seconds since the epoch.
    """

    name: str
    part: ObjectPart
    status: ObjectPart
    events: Sequence[ClusterEvent] = ()
    ready_changed: float = 0.0
    now: float = 0.0


def read_container(observed: ContainerInput) -> ContainerState:
    """The state of a container."""
    status = observed.status
    state, last = read_mapping(status, "state"), _read_last_end(observed)
    phase = _read_phase(state)
    started = read_seconds(state, "running", "startedAt")
    base = ContainerState(
        name=observed.name,
        phase=phase,
        ready=read_field(status, "ready") is True,
        restarts=read_number(status, "restartCount"),
        started=started,
        last=last,
        image=read_text(observed.part, "image"),
        digest=_read_digest(read_text(status, "imageID")),
    )
    if phase is ContainerPhase.RUNNING:
        return _explain_running(base, observed)
    if phase is ContainerPhase.ENDED:
        words = last.words if last is not None else ""
        return msgspec.structs.replace(base, message=words, failing=bool(words))
    return _explain_waiting(base, observed)


def describe_waiting(status: ObjectPart, events: Iterable[ClusterEvent] = ()) -> tuple[str, str]:
    """The reason of the platform, and the words, for a container that waits after a failure; empty without one.

    ``events`` are those of the container: an older kubelet says only there why an image is not pulled.
    """
    waiting = read_mapping(status, "state", "waiting")
    reason, message = read_text(waiting, "reason"), read_message(waiting, "message")
    shared = _SHARED_REASONS.get(reason)
    if shared is None:
        return "", ""
    if shared is Reason.START_FAILED and _NO_SECRET.search(message):
        shared = Reason.SECRET_UNAVAILABLE
    elif shared is Reason.START_FAILED and _NO_KEY.search(message):
        shared = Reason.SECRET_UNUSABLE
    if reason in _PULLING:
        message = _describe_pull(message, read_text(status, "image"), events)
    return shared, f"{shared}: {message or reason}"


def _describe_pull(message: str, image: str, events: Iterable[ClusterEvent]) -> str:
    """Why ``image`` is not pulled: the same words while the kubelet tries to, and while it waits for its next try."""
    if later := _PULLED_LATER.fullmatch(message):
        failures = map(_NOT_PULLED.fullmatch, (event.message for event in events))
        message = later["words"] or next((failure["words"] for failure in failures if failure is not None), message)
    return message if image in message or not message else f"the image {image}: {message}"


def _read_phase(state: ObjectPart) -> ContainerPhase:
    if read_field(state, "running") is not None:
        return ContainerPhase.RUNNING
    return ContainerPhase.ENDED if read_field(state, "terminated") is not None else ContainerPhase.WAITING


def _read_digest(image: str) -> str:
    """``registry/name@sha256:…``, as runtimes write it → ``sha256:…``; an id of the local image is no digest."""
    return image.rpartition("@")[2] if "@" in image else ""


def _read_last_end(observed: ContainerInput) -> ContainerEnd | None:
    """The end of the present run if it is over, else that of the one before."""
    status = observed.status
    ended = read_mapping(status, "state", "terminated") or read_mapping(status, "lastState", "terminated")
    if not ended:
        return None
    signal = read_number(ended, "signal")
    code = read_number(ended, "exitCode") or (128 + signal if signal else 0)
    reason: str = _SHARED_REASONS.get(read_text(ended, "reason"), Reason.ERROR if code else Reason.COMPLETED)
    at = read_seconds(ended, "finishedAt")
    message = read_message(ended, "message")
    # A program that obeys the signal of the kubelet may end with 0.
    begun = read_seconds(ended, "startedAt")
    probe = _find_liveness_failure(observed, begun, at) if reason in (Reason.ERROR, Reason.COMPLETED) else ""
    if probe:
        return ContainerEnd(code, Reason.LIVENESS_FAILED, probe, at)
    return ContainerEnd(code, reason, message, at)


def _find_liveness_failure(observed: ContainerInput, begun: float, at: float) -> str:
    """The words of the liveness probe for which the kubelet ended the run from ``begun`` to ``at``; "" if none did."""
    probe = read_mapping(observed.part, "livenessProbe")
    # Times have whole seconds, and no probe fails in the first one of a run.
    earliest = max(begun + 1, at - 2 * START_SECONDS - read_number(probe, "periodSeconds", default=10))
    for event in observed.events:
        words = _probe_words(event, observed.part, "Liveness")
        # The probe fails before the end, by the time that the container takes to end at most.
        if words and event.count >= read_number(probe, "failureThreshold", default=3) and earliest <= event.at <= at:
            return f"the liveness probe failed: {words}"
    return ""


def _probe_words(event: ClusterEvent, part: ObjectPart, probe: str) -> str:
    """What a failed probe met, as the host words it; "" if ``event`` is about something else.

    The kubelet repeats what a program printed, which may have a secret and differ each time: none of that is shown.
    """
    match = _PROBE.fullmatch(event.message) if event.reason == "Unhealthy" else None
    if match is None or match["probe"] != probe:
        return ""
    words = match["words"].strip()
    if read_mapping(part, f"{probe.lower()}Probe", "exec") and not words.startswith(_OF_KUBELET):
        return "its program failed"
    return re.sub(r"^HTTP probe failed with statuscode: (\d+)$", r"HTTP \1", words) or "without a message"


def _explain_running(state: ContainerState, observed: ContainerInput) -> ContainerState:
    if state.ready:
        return state
    events = [event for event in observed.events if event.at >= state.started]
    words = next(filter(None, (_probe_words(event, observed.part, "Readiness") for event in events)), "")
    again = state.last is not None and observed.now - state.started < BACKOFF_SECONDS and state.restarts > 0
    if words:
        message = f"the readiness probe failed: {words}"
    else:
        message = state.last.words if again and state.last is not None else ""
    delay = read_number(observed.part, "readinessProbe", "initialDelaySeconds")
    # The kubelet notes that a pod is not ready before its containers start; a later change is one from ready.
    was_ready = observed.ready_changed > state.started
    late_at = observed.ready_changed + EVENT_SECONDS if was_ready else state.started + delay + START_SECONDS
    late = observed.now >= late_at
    if not message and late:
        message = "it is not ready, and no probe reports why"
    failing = bool(message) and (again or late or was_ready)
    return msgspec.structs.replace(state, message=message, failing=failing, late_at=late_at)


def _explain_waiting(state: ContainerState, observed: ContainerInput) -> ContainerState:
    hook = _find_hook_failure(observed)
    waiting = read_text(observed.status, "state", "waiting", "reason")
    if waiting == "CrashLoopBackOff":
        words = (
            f"the postStart hook {describe_hook_end(hook.message)}"
            if hook is not None
            else state.last.words
            if state.last is not None
            else ""
        )
        message = words or read_message(observed.status, "state", "waiting", "message")
        reason = state.last.reason if state.last is not None else ""
        return msgspec.structs.replace(state, message=message, failing=True, backoff=True, reason=reason)
    reason, words = describe_waiting(observed.status, observed.events)
    if reason == Reason.POST_START_FAILED:
        words = f"the postStart hook {describe_hook_end(words)}"
    if not words and state.restarts and state.last is not None:
        return msgspec.structs.replace(state, message=state.last.words, failing=True, backoff=True)
    return msgspec.structs.replace(state, message=words, failing=bool(words), backoff=bool(words), reason=reason)


def _find_hook_failure(observed: ContainerInput) -> ClusterEvent | None:
    """The event of the postStart hook of the last run; None if the hook has worked since."""
    event = find_event(observed.events, "FailedPostStartHook")
    begun = read_seconds(observed.status, "lastState", "terminated", "startedAt")
    return event if event is not None and event.at >= begun else None


def describe_hook_end(words: str) -> str:
    """How a hook failed; newer kubelets leave the words out of the event, since they may have secrets."""
    code = _EXIT_CODE.search(words)
    return f"ended with {code[1]}" if code else "failed"
