"""All views and all actions of the page, and who may see and do what: a test fails if one is missing here."""

from __future__ import annotations

from typing import NamedTuple

ADMINISTRATOR, OPERATOR, VIEWER = "", "operator", "viewer"
CALLERS = (ADMINISTRATOR, OPERATOR, VIEWER)
EVERYBODY = frozenset(CALLERS)
ACTORS = frozenset({ADMINISTRATOR, OPERATOR})
ALONE = frozenset({ADMINISTRATOR})

WEB, BROKEN, REPORT = "workload/shop/web", "workload/shop/broken", "workload/shop/report"
MEDIA, SPARE = "volumeset/shop/media", "volumeset/shop/spare"


class View(NamedTuple):
    """A view: its address, who may see it, and a part of the command to copy.

    In both, ``{first}`` is the first commit, ``{digest}`` that of the plan that waits for an approval, and
    ``{message}`` the number of a message.
    """

    path: str
    callers: frozenset[str] = EVERYBODY
    command: str = ""


VIEWS = {
    "home": View("/", command="reconciler status"),
    "resources": View("/ui/resources", command="reconciler get"),
    "search": View("/ui/resources?state=unwell", command="reconciler get --state unwell"),
    "level": View("/ui/resources?gvc=shop", command="reconciler get --gvc shop"),
    "tree": View(f"/ui/resources?gvc=shop&kind=workload&open={WEB}%40here", command="get workload --gvc shop"),
    "nothing": View("/ui/resources?text=no-such-thing", command="--text no-such-thing"),
    "workload": View(f"/ui/resource/{WEB}", command=f"describe {WEB}"),
    "unwell": View(f"/ui/resource/{BROKEN}", command=f"describe {BROKEN}"),
    "cron": View(f"/ui/resource/{REPORT}", command=f"describe {REPORT}"),
    "volumes": View(f"/ui/resource/{MEDIA}", command=f"snapshots {MEDIA}"),
    "secret": View("/ui/resource/secret/db", command="describe secret/db"),
    "gvc": View("/ui/resource/gvc/shop", command="describe gvc/shop"),
    "evidence": View(f"/ui/evidence/{BROKEN}", command=f"logs {BROKEN}"),
    "exec": View(f"/ui/exec/{WEB}", ACTORS, f"exec {WEB}"),
    "source": View("/ui/resource/source/main", command="describe source/main"),
    "runs": View("/ui/runs", command="reconciler history"),
    "run": View("/ui/runs/1", command="history --run 1"),
    "messages": View("/ui/notifications", command="notify list"),
    "message": View("/ui/notifications/{message}", command="notify show {message}"),
    "plan": View("/ui/plan/source/main", command="reconciler plan main"),
    "older-plan": View("/ui/plan/source/main?revision={first}", command="plan main --revision {first}"),
    "plan-that-waits": View("/ui/plan/digest/{digest}", command="reconciler approve"),
    "difference": View("/ui/diff/source/main?from={first}&to=HEAD", command="diff {first} HEAD"),
    "difference-pages": View("/ui/diff/source/main?from={first}&to=HEAD&after=shop", command="diff {first} HEAD"),
    "difference-of-one": View(f"/ui/diff/source/main?from={{first}}&to=HEAD&key={WEB}", command=f"--key {WEB}"),
    "no-difference": View("/ui/diff/source/main"),
    "rollback": View(f"/ui/rollback/{REPORT}?revision={{first}}", ACTORS, f"rollback {REPORT}"),
    "no-rollback": View("/ui/rollback/gvc/shop?revision={first}", ALONE, "rollback gvc/shop"),
    "logs": View(f"/ui/logs?query={WEB}", ACTORS, f"logs {WEB}"),
    "trace": View(f"/ui/logs?query={REPORT}", ACTORS, f"logs {REPORT}"),
    "no-logs": View("/ui/logs"),
    "login": View("/ui/login", command="reconciler page"),
}
"""Each view, and each state of one that has pictures → where it is."""
OTHERS = frozenset({"/ui/login/{code}", "/ui/login/provider", "/ui/asset/{hash}/{name}"})
"""What a browser asks for that is no view: links that log in, and files."""
STREAMS = frozenset(
    {"/ui/events", "/ui/logs/follow", "/ui/logs/complete", "/ui/logs/download", "/ui/terminal/{kind}/{gvc}/{name}"}
)
"""What views ask for."""


class Action(NamedTuple):
    """A form: its template, the view that has it, where it sends to, and who may use it.

    ``fields`` are texts by the names of its inputs, those that are hidden among them; ``answer`` is a part of what the
    next page says. The texts have names as those of views, ``{name}`` for a snapshot and ``{size}`` for a capacity.
    """

    template: str
    view: str
    sends: str
    callers: frozenset[str] = ACTORS
    fields: tuple[tuple[str, str], ...] = ()
    answer: str = ""

    @property
    def command(self) -> str:
        """The command that it requests, "" for another action."""
        return dict(self.fields).get("type", "")


_TO = "/ui/do/POST/org/acme"
_WEB_VIEW, _WEB_TO = f"/ui/resource/{WEB}", f"{_TO}/gvc/shop/workload/web"
_REPORT_TO, _SPARE_TO = f"{_TO}/gvc/shop/workload/report", f"{_TO}/gvc/shop/volumeset/spare/-command"
_SOURCE_VIEW, _SOURCE_TO = "/ui/resource/source/main", f"{_TO}/source/main"
_REASON = ("reason", "a look")


def _request_on_volume(command: str, *fields: tuple[str, str], template: str = "volumes") -> Action:
    return Action(
        template, f"/ui/resource/{SPARE}", _SPARE_TO, ACTORS, (("type", command), *fields), f"{command} is recorded"
    )


ACTIONS = (
    Action("resource", _WEB_VIEW, f"{_WEB_TO}/-restart", answer=WEB),
    Action("resource", _WEB_VIEW, f"{_WEB_TO}/-suspend", fields=(_REASON,), answer=WEB),
    Action("resource", _WEB_VIEW, f"{_WEB_TO}/-resume", answer=WEB),
    Action("resource", _WEB_VIEW, f"{_WEB_TO}/-command", fields=(("type", "stopReplica"),), answer="stopReplica"),
    Action(
        "resource",
        f"/ui/resource/{REPORT}",
        f"{_REPORT_TO}/-command",
        fields=(("type", "runCronWorkload"), ("spec.location", "here")),
        answer="runCronWorkload",
    ),
    Action("rollback", f"/ui/rollback/{REPORT}?revision={{first}}", f"{_REPORT_TO}/-rollback", answer="is as in"),
    Action("terminal", f"/ui/exec/{WEB}", f"/ui/exec/{WEB}", fields=(("command", "echo hello"),), answer="hello"),
    Action("resource", "/ui/resource/secret/db", "/ui/reveal/secret/db", ALONE, answer="hunter2"),
    _request_on_volume("createVolumeSnapshot", ("spec.snapshotName", "{name}")),
    _request_on_volume("verifyVolumeSnapshot", ("spec.snapshotName", "{name}")),
    _request_on_volume("restoreVolume", ("spec.snapshotName", "{name}")),
    _request_on_volume(
        "cloneVolumeSnapshot",
        ("spec.location", "here"),
        ("spec.volumeIndex:number", "0"),
        ("spec.snapshotName", "before-the-sale"),
        ("spec.source", MEDIA),
        template="resource",
    ),
    _request_on_volume("deleteVolumeSnapshot", ("spec.snapshotName", "before-the-sale")),
    _request_on_volume("expandVolume", ("spec.newStorageCapacity:number", "{size}")),
    _request_on_volume("deleteVolume"),
    Action("source", _SOURCE_VIEW, f"{_SOURCE_TO}/-sync", ALONE, answer="main"),
    Action("source", _SOURCE_VIEW, f"{_SOURCE_TO}/-suspend", ALONE, (_REASON,), "main"),
    Action("home", "/", f"{_SOURCE_TO}/-resume", ALONE, answer="main"),
    Action("source", _SOURCE_VIEW, f"{_SOURCE_TO}/-rollback", ALONE, (("revision", "{first}"), _REASON), "main"),
    Action("source", _SOURCE_VIEW, f"{_SOURCE_TO}/-resume", ALONE, answer="main"),
    Action("plan", "/ui/plan/source/main?revision={first}", f"{_SOURCE_TO}/-rollback", ALONE, (_REASON,), "main"),
    Action("home", "/", f"{_SOURCE_TO}/-resume", ALONE, answer="main"),
)
"""What each caller does in this order, with and without scripts."""
APPROVALS = (
    Action("plan", "/ui/plan/digest/{digest}", f"{_TO}/-refuse", ALONE, (_REASON,), "refused"),
    Action("plan", "/ui/plan/digest/{digest}", f"{_TO}/-approve", ALONE, answer="approved"),
    Action("home", "/", f"{_TO}/-approve", ALONE, answer="approved"),
)
"""What is done about a plan that waits: the first two about one, the last about another."""
RETRY = Action("resource", _WEB_VIEW, f"{_WEB_TO}/-retry", answer=WEB)
"""What is done about a step that failed."""
SESSION = frozenset({("layout", "/ui/logout"), ("login", "/ui/login")})
"""The forms that begin and end a session: the template of each, and where it sends to."""
