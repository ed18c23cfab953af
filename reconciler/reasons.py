"""Every reason and every type of condition, with the text that docs/status.md prints for each.

A new one is added here and used where it arises; nothing else lists them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class EventType(StrEnum):
    """The two types of Kubernetes events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Use(StrEnum):
    """The use of a reason; each is a table of docs/status.md."""

    RESOURCE = "condition of a resource"
    SOURCE = "condition of a source"
    EVENT = "event"
    WORKLOAD = "failure of a workload on this host"
    CONTAINER = "end of a container"
    REPLICA = "end of a replica"
    OTHER = "error, or a condition of the daemon"


class Text(NamedTuple):
    """The meaning of a reason in one ``use``. ``advice`` is for conditions, ``type`` for events."""

    use: Use
    meaning: str
    advice: str = ""
    type: EventType = EventType.WARNING


def _resource(meaning: str, advice: str) -> Text:
    return Text(Use.RESOURCE, meaning, advice)


def _source(meaning: str, advice: str) -> Text:
    return Text(Use.SOURCE, meaning, advice)


def _normal(meaning: str) -> Text:
    return Text(Use.EVENT, meaning, type=EventType.NORMAL)


def _warning(meaning: str) -> Text:
    return Text(Use.EVENT, meaning)


def _workload(meaning: str) -> Text:
    return Text(Use.WORKLOAD, meaning)


def _container(meaning: str) -> Text:
    return Text(Use.CONTAINER, meaning)


def _replica(meaning: str) -> Text:
    return Text(Use.REPLICA, meaning)


def _other(meaning: str) -> Text:
    return Text(Use.OTHER, meaning)


class ConditionType(StrEnum):
    """The type of a condition; ``meaning`` explains True, or, for types that are normally true, False."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> ConditionType:
        """The type ``name``."""
        member = str.__new__(cls, name)
        member._value_, member.meaning = name, meaning
        return member

    @property
    def abnormal(self) -> bool:
        """Whether True needs attention; for the other types, False does."""
        normal = (
            self.READY,
            self.PLACED,
            self.SOURCE_REACHABLE,
            self.STATUS_PUSHED,
            self.SETTINGS_LOADED,
            self.BACKED_UP,
            self.NOTIFYING,
        )
        return self not in normal

    @property
    def degrades(self) -> bool:
        """Whether a resource with it is Unhealthy, whatever runs: a part of it does not do its work."""
        domain = (self.NOT_SERVED, self.CERTIFICATE_MISSING)
        snapshots = (self.SNAPSHOT_FAILING, self.SNAPSHOT_VERIFICATION_FAILING)
        return self in (*domain, *snapshots, self.VOLUME_DAMAGED, self.VOLUME_CHECK_FAILING)

    # fmt: off
    READY = ("Ready",
        "A resource is as Git declares it, at every location, and healthy. Of a source the last run applied all.")
    RECONCILING = "Reconciling", "More will happen without an operator. Present only while it is true."
    STALLED = ("Stalled",
        "A step failed: it was tried `retry.attempts` times, or no other try can help. Present only while it is true.")
    PLACED = ("Placed",
        "False: the settings of this host bind no engine to locations of the GVC. Present only while it is false.")
    NOT_ENFORCED = ("NotEnforced",
        "A part of the manifest has no effect, at all or where it runs: the message says what, and where. The resource "
        "can be ready all the same. Present only while it is true.")
    CLOCK_JUMPED = ("ClockJumped",
        "The clock of the host where it runs was set within the last hour. No wait and no probe depends on it, and "
        "nothing expires meanwhile that was there before. Present only while it is true.")
    SCALING_UNKNOWN = ("ScalingUnknown",
        "The metric that a workload is scaled by has had no value for 30 s. Present only while it is true.")
    OBJECTS_UNKNOWN = ("ObjectsUnknown",
        "The daemon may not read, or cannot watch, objects of a kind that a workload on a cluster has: what others "
        "change of them is not seen, and what it no longer needs of them stays. Present only while it is true.")
    NOT_SERVED = ("NotServed",
        "A part of a domain is not served, such as a route that HAProxy refuses. Present only while it is true.")
    NOT_VERIFIED = ("NotVerified",
        "The TXT record that proves a domain was not found, so no certificate is ordered for it. Present only while it "
        "is true.")
    CERTIFICATE_MISSING = ("CertificateMissing",
        "A host name of a domain is not served with TLS: it has no certificate that can be used. Present only while it "
        "is true.")
    CERTIFICATE_EXPIRING = ("CertificateExpiring",
        "A certificate of a domain, or that of the API, expires within 14 days, or within a sixth of its life if that "
        "is shorter; or it could not be renewed. Present only while it is true.")
    EXECUTIONS_FAILING = ("ExecutionsFailing",
        "At least the last three executions of a cron workload failed. Present only while it is true.")
    EXECUTIONS_UNFINISHED = ("ExecutionsUnfinished",
        "An execution of a cron workload runs for so long that three scheduled times were skipped, or the last three "
        "executions were replaced before they ended. Present only while it is true.")
    SNAPSHOT_FAILING = ("SnapshotFailing",
        "The last snapshot of a schedule failed, so the newest copy of a volume gets older. It is tried again after 1 "
        "to 60 minutes, and at the next time of the schedule; any newer snapshot ends it. Present only while it is "
        "true.")
    SNAPSHOT_VERIFICATION_FAILING = ("SnapshotVerificationFailing",
        "The newest snapshot of a volume could not be restored to a copy, or did not pass the check that the workload "
        "names (`reconciler/verify-snapshot`). It is tried again after 1 to 60 minutes. Present only while it is true.")
    VOLUME_CHECK_FAILING = ("VolumeCheckFailing",
        "A volume lost its file system, or could not be expanded, measured, trimmed or rid of expired snapshots, or a "
        "hook after a snapshot failed. It is tried again after 1 to 60 minutes. Present only while it is true.")
    SNAPSHOT_EXPORT_FAILING = ("SnapshotExportFailing",
        "A snapshot of a volume could not be exported; it is tried again. Present only while it is true.")
    VOLUME_DAMAGED = ("VolumeDamaged",
        "A volume or a snapshot of a volume set cannot be read or used; the message names the file and what to do. All "
        "other volumes are used as before. Present only while it is true.")
    HOST_DISK_LOW = ("HostDiskLow",
        "A volume neither grows nor gets a scheduled snapshot, since its disk has less free than `host.diskReserve`; "
        "the message names what makes room. Present only while it is true.")
    DISK_OVERCOMMITTED = ("DiskOvercommitted",
        "The volumes of a location may become larger together than their disk. It can be ready all the same. Present "
        "only while it is true.")
    VOLUME_NEARLY_FULL = ("VolumeNearlyFull",
        "A volume with a limit is full to 90 %, and was not below 85 % since. It can be ready all the same. Present "
        "only while it is true.")
    SOURCE_REACHABLE = "SourceReachable", "The newest revision of the source could be read."
    SOURCE_STALE = "SourceStale", "The source could not be read for longer than `stale`."
    SUSPENDED = ("Suspended",
        "An operator suspended the source or the resource: no run changes it. Present only while it is true.")
    DISK_FULL = "DiskFull", "The disk of the state directory is full. Present only while it is true, on sources."
    HOLDING_REQUESTS = ("HoldingRequests",
        "An operator holds the requests of a workload: new ones wait. Present only while it is true.")
    PINNED = "Pinned", "An operator holds the source at an older revision. Present only while it is true."
    STATUS_PUSHED = "StatusPushed", "The last write of the source's status branch arrived. In the records alone."
    STATUS_STALE = ("StatusStale",
        "No write of the source's status branch arrived for longer than `stale`. In the records alone.")
    SETTINGS_LOADED = "SettingsLoaded", "The daemon uses the settings as their file is now. In the records alone."
    BACKED_UP = ("BackedUp",
        "The newest backup of the records is not older than `backups.longestAge`, and no later try failed. In the "
        "records alone.")
    NOTIFYING = ("Notifying",
        "The last message to a channel of `notifications` arrived. In the records alone, by channel.")
    WAITING = "Waiting", "No run changes the resource though Git and its record differ. In the records alone."
    # fmt: on


class Reason(StrEnum):
    """A reason in one CamelCase word: of conditions, events, failures, and ended containers.

    ``texts`` has the text of each use, ``event_type`` is the type of events. Failures become events too: warnings.
    """

    texts: dict[Use, Text]
    event_type: EventType

    def __new__(cls, name: str, *texts: Text) -> Reason:
        """The reason ``name``."""
        member = str.__new__(cls, name)
        member._value_, member.texts = name, {text.use: text for text in texts}
        event = member.texts.get(Use.EVENT)
        member.event_type = event.type if event is not None else EventType.WARNING
        return member

    @classmethod
    def from_stored(cls, text: str) -> Reason:
        """The reason recorded as ``text``; FAILED for an unknown one."""
        enum = cls._value2member_map_.get(text)
        return enum if isinstance(enum, Reason) else cls.FAILED

    # fmt: off
    # What a run does to resources.
    APPLIED = ("Applied",
        _resource("It is applied at every location, and healthy.", "Nothing."),
        _source("The last run applied all of the revision.", "Nothing."))
    RECORDED = ("Recorded",
        _resource("It is applied. At some of its locations, or all, the engine `recorded` runs nothing.",
                  "Nothing, or bind the locations to another engine."))
    PENDING = "Pending", _resource("It is in Git, and not yet applied at every location.", "Nothing.")
    CREATED = "Created", _normal("A resource was created at a location, or recorded.")
    UPDATED = "Updated", _normal("It was changed; the message names the fields.")
    REPLACED = ("Replaced", _normal("It was deleted and created anew."),
        _replica("A replica of a newer version, or one that a restart asked for, takes over."))
    DELETED = "Deleted", _normal("It was deleted."), _replica("The workload is deleted.")
    RETAINED = ("Retained",
        _resource("It is no longer in Git and is not deleted: it is protected, a tag keeps it, another resource needs "
                  "it, or pruning is off.", "Nothing, or remove the protection."))
    ORPHANED = ("Orphaned",
        _resource("Its source is no longer in the settings. It stays as it is.",
                  "`reconciler adopt KEY --source NAME`, or put the source back into the settings."),
        _normal("An operator lets it stay when it leaves Git, or its source is no longer in the settings."))
    ADOPTED = "Adopted", _normal("An operator ended that, or another source owns it now: by request, or by Git.")
    DELETING = "Deleting", _resource("It is no longer in Git, and is being deleted.", "Nothing.")
    TERMINATING = "Terminating", _resource("It is deleted or replaced once its last replicas have ended.", "Nothing.")

    # What a step waits for.
    APPROVAL_REQUIRED = ("ApprovalRequired",
        _resource("A step waits: it deletes volumes, replaces a resource, exceeds the budget of deletes, or `approval` "
                  "asks for an approval of it.",
                  "Read `reconciler plan`, then `reconciler approve DIGEST`. Deletes beyond the budget of an hour also "
                  "proceed by themselves, at the time that the message names."),
        _source("Steps of the last run wait for approval.",
                "Read `reconciler plan`, then `reconciler approve DIGEST`."),
        _normal("Steps of a source wait for the approval of the digest in the message: an event for each set of them."))
    APPROVAL_REFUSED = ("ApprovalRefused",
        _resource("A step waits, and somebody refused it: the message says who and why.",
                  "Push a commit that no longer needs it, or `reconciler approve DIGEST`."),
        _source("Steps of the last run wait, and somebody refused them.",
                "Push a commit that no longer needs them, or `reconciler approve DIGEST`."),
        _normal("Somebody refused steps of a source that wait; the message says who and why."))
    APPROVED = "Approved", _normal("An operator approved steps of a source, or its rewritten history.")
    DEPENDENCY_WAITING = "DependencyWaiting", _resource("A resource that it depends on waits.", "See that resource.")
    DEPENDENCY_FAILED = ("DependencyFailed",
        _resource("A resource that it depends on could not be applied.", "See that resource."))
    DEPENDENCY_NOT_HEALTHY = ("DependencyNotHealthy",
        _resource("Its tag `reconciler/depends-on` names a resource that is not healthy; or it was renamed, and stays "
                  "until the workload in its place is healthy.", "See that resource."))
    LOCATION_NOT_BOUND = ("LocationNotBound",
        _resource("The GVC names locations that the settings of this host bind to no engine.",
                  "Add them under `locations`, or leave them to the host that has them."))
    PREEMPTED = "Preempted", _other("A step was not begun, since the daemon stops or a newer revision is there.")
    STEPS_FAILED = ("StepsFailed",
        _source("Steps of the last run failed; they are tried again.", "See the resources that are not ready."))
    STEPS_WAITING = ("StepsWaiting",
        _source("Steps of the last run wait for others, or the run ended early for a newer revision.",
                "Nothing, or see the resources."))

    # What operators do.
    SUSPENDED = ("Suspended",
        _resource("An operator suspended it: no run changes it.", "`reconciler resume KEY`, or wait until it ends."),
        _source("An operator suspended it: the message says who, until when and why.",
                "`reconciler resume SOURCE`, or wait until it ends."),
        _normal("An operator suspended it; the message says until when and why."),
        _replica("The options of the workload suspend it."))
    RESUMED = "Resumed", _normal("An operator ended a suspension or a rollback, or the time of a suspension is over.")
    HOLDING_REQUESTS = ("HoldingRequests",
        _resource("An operator holds its requests: new ones wait. The message says who, until when and why.",
                  "`reconciler hold KEY --release` ends it earlier."),
        _normal("An operator holds the requests of a workload; the message says who, until when and why. Another event "
                "follows from each location, when the hold is in force there."))
    REQUESTS_RELEASED = ("RequestsReleased",
        _normal("An operator ended a hold of requests, or its time is over. What waited goes on."))
    PINNED = ("Pinned", _source("An operator rolled it back to an older revision: the message says who, where and why.",
                                "`reconciler resume SOURCE` follows the branch again."))
    ROLLED_BACK = "RolledBack", _normal("An operator holds the source at an older revision.")
    RETRY_REQUESTED = "RetryRequested", _normal("An operator asks for another try of failed steps at once.")
    RESTART_REQUESTED = "RestartRequested", _normal("An operator asks for new replicas of a workload.")
    COMMAND_COMPLETED = ("CommandCompleted",
        _normal("A command on a workload or a volume set is performed; the message says who requested it."))
    COMMAND_FAILED = ("CommandFailed",
        _warning("A command on a workload or a volume set failed; the message says who requested it, and why. It is "
                 "not tried again."))
    EXPORT_FAILED = ("ExportFailed",
        _resource("A snapshot of a volume could not be exported; the message says why.",
                  "See the message. It is tried again within 15 minutes."),
        _warning("A snapshot of a volume could not be exported; the message says why."),
        _other("restic could not do what was asked for."))
    FINAL_SNAPSHOT_DELETED = ("FinalSnapshotDeleted",
        _normal("An operator deleted the final snapshot of a deleted volume."))
    COMMAND_CANCELLED = "CommandCancelled", _normal("An operator cancelled a command before it was performed.")

    CHANGE_COMMITTED = ("ChangeCommitted",
        _normal("A change of a resource through the HTTP API is in Git; the message says who made it, and the commit."))

    # Sources and their status branch.
    FETCHED = "Fetched", _source("Its newest revision could be read.", "Nothing.")
    INVALID_REVISION = ("InvalidRevision",
        _source("The revision has errors and is refused; the last good one stays applied.",
                "`reconciler validate` lists the errors; push a corrected commit."),
        _warning("A revision is refused: an event of its source, and one for each of its first 100 findings."))
    INVALID_FILES = ("InvalidFiles",
        _source("Files of the revision have errors and are skipped (`onInvalid: skip`): their resources stay as they "
                "were. The rest is applied.", "`reconciler validate` lists the errors; push a corrected commit."),
        _warning("Files of a revision have errors and are skipped; events as for InvalidRevision."))
    SOURCE_UNREACHABLE = ("SourceUnreachable",
        _source("The remote does not answer, refuses the login, or takes too long.", "See the message."),
        _warning("The source cannot be read, for this reason; likewise the next five."))
    SOURCE_NOT_FOUND = ("SourceNotFound",
        _source("The repository, branch, tag, commit or path does not exist. Nothing is deleted for that.",
                "Restore it, or correct the settings."),
        _warning("See the conditions of a source."))
    SOURCE_EMPTY = ("SourceEmpty",
        _source("The path holds no manifest. Nothing is deleted for that.",
                "Correct path, include and exclude, or delete the resources one by one."),
        _warning("See the conditions of a source."))
    SOURCE_REWRITTEN = ("SourceRewritten",
        _source("The branch moved to a commit that does not contain the last one.",
                "Push one that does, follow this one with `reconciler approve COMMIT`, or set `allowRewrite`."),
        _warning("See the conditions of a source."))
    SOURCE_UNVERIFIED = ("SourceUnverified",
        _source("The commit or tag is not signed, or not by a signer that the settings trust. The last good revision "
                "stays applied.", "Sign it, or trust its key: [signatures.md](signatures.md)."),
        _warning("See the conditions of a source."))
    SOURCE_FAILED = ("SourceFailed",
        _source("A Git operation failed; the message says which.", "See the message."),
        _warning("See the conditions of a source."))
    RECOVERED = ("Recovered",
        _normal("A source works again: its revision is no longer refused, it can be read again, or no bug ends its "
                "runs. The message repeats what was wrong."))
    PUSHED = "Pushed", _source("The status branch is up to date.", "Nothing.")
    PUSH_CONFLICT = ("PushConflict",
        _source("Other writers moved the status branch again and again.", "Nothing; the push is tried again."))
    STATUS_BRANCH_TAKEN = ("StatusBranchTaken",
        _source("Another daemon writes the status branch; the message says which. Nothing is written over it.",
                "Give one of them another `status.branch`. If the other one is gone: "
                "`reconciler apply --take-status-branch`."))

    # Health and drift.
    LOADING = ("Loading",
        _resource("It is applied and not yet ready: the message says how far each location is.", "Nothing."))
    HEALTHY = "Healthy", _normal("It became healthy at the location in the message.")
    UNHEALTHY = ("Unhealthy",
        _resource("It is applied and not healthy: the message says what fails.",
                  "Read the message, `reconciler top` and `reconciler logs KEY`."),
        _warning("It became unhealthy; the message says what fails."))
    HEALTH_UNKNOWN = "HealthUnknown", _resource("It is applied, and its health is unknown.", "Check its location.")
    NOT_ENFORCED = ("NotEnforced",
        _resource("What the message names has no effect where it runs.", "Nothing, or remove it from the manifest."))
    DRIFTED = ("Drifted",
        _resource("It was changed at its location, and not in Git.",
                  "Nothing, the next run heals it; or see `reconciler drift` for what may differ."))
    DRIFT_CONFLICT = ("DriftConflict",
        _resource("It was healed as often as `drift.mostHeals` allows within an hour, and changed again each time.",
                  "Find out who changes it, then `reconciler retry KEY`; or let it differ, see `reconciler drift`."),
        _warning("It was healed again and again, and is no longer healed."))
    DRIFT_DETECTED = ("DriftDetected",
        _warning("It differs at its location from what was applied; the message names the fields."))
    DRIFT_HEALED = "DriftHealed", _normal("It was applied again, and is as it was applied.")
    DRIFT_RESOLVED = "DriftResolved", _normal("It no longer differs, though nothing was done about it.")
    LOCATION_UNREACHABLE = ("LocationUnreachable",
        _warning("The engine of a location does not answer. Nothing is concluded about what is there."))
    LOCATION_REACHABLE = "LocationReachable", _normal("The engine of the location answers again.")

    # Workloads on this host.
    CONTAINER_ENDED = ("ContainerEnded",
        _warning("A container ended by itself, with the code in the message. An event for the first end in a row, and "
                 "for every tenth."))
    START_FAILED = ("StartFailed",
        _warning("A container could not be started; the message says why. An event for the first failure in a row, and "
                 "for every tenth."),
        _container("Its program could not be started."))
    EVICTED = ("Evicted",
        _warning("A replica used more ephemeral storage than its limit. It was killed and is replaced."),
        _replica("It used more ephemeral storage than its limit."))
    EXECUTION_FAILED = ("ExecutionFailed",
        _warning("An execution of a cron workload failed, could not be started, or ran longer than its deadline."))
    EXECUTION_SKIPPED = ("ExecutionSkipped",
        _warning("A scheduled time of a cron workload was skipped, since an execution still runs. An event for the "
                 "first in a row, and for every tenth after it."))
    EXECUTION_LATE = ("ExecutionLate",
        _warning("An execution of a cron workload started more than 10 s late: others started first "
                 "(`host.cronStarts`), its image was missing, or the execution that it replaces took long to end."))
    EXECUTIONS_MISSED = ("ExecutionsMissed",
        _warning("Scheduled times passed while the daemon or the machine did not run, or the clock was set forward. "
                 "The newest one runs, and the message counts the others."))
    EXECUTIONS_FAILING = ("ExecutionsFailing",
        _resource("At least the last three executions of the cron workload failed, could not be started, or ran longer "
                  "than their deadline.", "`reconciler logs KEY --replica NAME`, with the name in the message."),
        _warning("The third execution in a row of a cron workload failed; the message has its failure."))
    EXECUTIONS_UNFINISHED = ("ExecutionsUnfinished",
        _resource("An execution does not end: scheduled times are skipped, or each execution is replaced before that.",
                  "See what it does; set `activeDeadlineSeconds`, or a schedule with longer intervals."),
        _warning("Three scheduled times in a row of a cron workload were skipped, or three executions replaced before "
                 "they ended."))
    EXECUTIONS_RECOVERED = ("ExecutionsRecovered",
        _normal("An execution of a cron workload succeeded after at least three that failed in a row."))
    DEADLINE_EXCEEDED = "DeadlineExceeded", _replica("The execution ran longer than `activeDeadlineSeconds`.")
    POST_START_FAILED = ("PostStartFailed",
        _warning("A postStart hook failed. On a host the container runs on, and `top` shows the failure; a cluster "
                 "starts it again."))
    PRE_STOP_FAILED = "PreStopFailed", _warning("A preStop hook failed. The replica ends all the same.")
    CONNECTIONS_REFUSED = ("ConnectionsRefused",
        _warning("Connections to the endpoint of a workload found no replica in time, or too many waited or were open "
                 "already."))
    LIMITS_CHANGED = ("LimitsChanged",
        _normal("Capacity AI changed limits of containers that run, as their use in the past recommends."))
    MANY_REQUESTS_WAIT = ("ManyRequestsWait",
        _warning("More requests wait for the workload than for any other of the location, and HAProxy has so many "
                 "connections that only a few of each workload may wait for now."))
    MANY_CONNECTIONS = ("ManyConnections",
        _warning("The workload has more open requests and connections than any other of the location, and HAProxy has "
                 "hardly room for others: no workload gets more than its share for now, beyond that is 503."))
    REQUESTS_CUT_OFF = ("RequestsCutOff",
        _warning("A replica that ends was killed after its termination grace period with open requests, such as "
                 "WebSockets and streams. The built-in data plane counts connections, idle ones included."))
    PROXY_RESTARTED = ("ProxyRestarted",
        _warning("HAProxy had ended and was started again: the requests in flight were lost."))
    CERTIFICATE_ISSUED = ("CertificateIssued",
        _normal("The authority issued the certificate of a host name; it is served from now on."))
    CERTIFICATE_UNUSABLE = ("CertificateUnusable",
        _warning("A file with a certificate cannot be used; the message has its path and the reason. Other "
                 "certificates are served."))
    CERTIFICATE_FAILED = ("CertificateFailed",
        _warning("An order of a certificate failed; the message has the reason and the time of the next order. The "
                 "former certificate is served until it expires."))
    NOT_VERIFIED = ("NotVerified",
        _resource("The TXT record in the message does not exist, or cannot be read. It proves that the domain is "
                  "yours.", "Publish the record; it is looked up every minute, and every day once it was found."),
        _warning("The TXT record that proved a domain has gone. No certificate is ordered or renewed for it."))
    CERTIFICATE_MISSING = ("CertificateMissing",
        _resource("Host names of the domain have no certificate that can be used; the message says why.",
                  "Put one into `ingress.certificates` or a secret, or set `ingress.acme`."))
    CERTIFICATE_EXPIRING = ("CertificateExpiring",
        _resource("A certificate of the domain expires soon, or could not be renewed; the message says why.",
                  "Replace its file or secret; one that was ordered is ordered again."),
        _warning("A certificate of a domain, or that of the API, expires soon, or could not be renewed; the message "
                 "says why."))
    CERTIFICATE_RENEWED = "CertificateRenewed", _normal("The certificate that expired soon is replaced, or gone.")
    ROUTE_NOT_SERVED = ("RouteNotServed",
        _resource("A part of the domain is not served: the message says what, and why.",
                  "Correct what the message names; for a port of another program, see `reconciler doctor`."),
        _warning("A part of a domain is not served at a location, such as a route that HAProxy refuses."))
    FIREWALL_RESTORED = ("FirewallRestored",
        _warning("Another program changed or removed the firewall of the containers; the daemon wrote it again."))
    PROXY_FAILED = ("ProxyFailed",
        _workload("HAProxy is not installed, cannot be started, or does not answer: the endpoint may not be served."))
    PROXY_CONFIG_REFUSED = ("ProxyConfigRefused",
        _workload("HAProxy refused its new configuration. The former one stays in force."))
    SCALED = "Scaled", _normal("Autoscaling changed the number of replicas; the message has the metric and its target.")
    SCALING_UNKNOWN = ("ScalingUnknown",
        _resource("The metric that it is scaled by has no value, so the number of its replicas stays as it is.",
                  "See whether the data plane and the runtime of the location work: `reconciler doctor`."),
        _warning("The metric of a workload has had no value for 30 s: nothing is scaled up or down meanwhile."))
    SCALING_KNOWN = "ScalingKnown", _normal("The metric of a workload has values again.")
    SCRAPE_FAILED = ("ScrapeFailed",
        _warning("The metrics of a container could not be scraped three times in a row; the message says why."))
    SCRAPE_RECOVERED = "ScrapeRecovered", _normal("The metrics of a container are scraped again, in all its replicas.")
    REPLICA_STOPPED = "ReplicaStopped", _replica("Someone asked to stop it; another one replaces it.")
    SCALED_DOWN = "ScaledDown", _replica("The workload needs fewer replicas.")
    VOLUMES_CHECKED = ("VolumesChecked",
        _normal("What the volumes of a host are, or what was repaired after a crash, at the start of the daemon."))
    VOLUME_EXPANDED = "VolumeExpanded", _normal("A volume grew because it fills (`autoscaling` of its volume set).")
    VOLUME_NEARLY_FULL = ("VolumeNearlyFull",
        _resource("A volume is full to 90 %, and was not below 85 % since; the message says which.",
                  "Delete data, or raise `initialCapacity`, or `autoscaling.maxCapacity` if it grows by itself."),
        _warning("A volume is full to 90 %."))
    VOLUME_HAS_ROOM = "VolumeHasRoom", _normal("No volume of the set is nearly full any more: each is below 85 %.")
    SNAPSHOT_STOPPED_REPLICA = ("SnapshotStoppedReplica",
        _normal("A replica was stopped for a snapshot, since its volume cannot be copied while programs write; the "
                "message says for how long."))
    SNAPSHOT_FAILED = ("SnapshotFailed",
        _resource("A snapshot of the schedule could not be taken.",
                  "Do what the message says. `reconciler command KEY createVolumeSnapshot` takes one at once."),
        _warning("A snapshot of the schedule could not be taken; the message says why."))
    SNAPSHOT_PROVEN = ("SnapshotProven",
        _normal("A snapshot was restored to a copy, which passed the check of the workload if it names one."))
    SNAPSHOT_VERIFICATION_FAILED = ("SnapshotVerificationFailed",
        _resource("A snapshot could not be restored to a copy, or the copy did not pass the check of the workload.",
                  "Do what the message says, then: reconciler command KEY verifyVolumeSnapshot. Do not rely on this "
                  "snapshot."),
        _warning("A snapshot could not be restored to a copy, or the copy did not pass the check of the workload; the "
                 "message says why."),
        _other("A snapshot could not be restored to a copy, or the copy did not pass the check of the workload."))
    SNAPSHOT_EXPIRED = ("SnapshotExpired",
        _normal("A snapshot was deleted, since it expired or newer ones are enough."))
    VOLUME_CHECK_FAILED = ("VolumeCheckFailed",
        _resource("A volume lost its file system, or something that happens to it by itself failed.",
                  "Do what the message says."),
        _warning("A volume lost its file system, a restore of it was undone, or it could not be expanded, measured, "
                 "trimmed or rid of expired snapshots."))
    SNAPSHOT_DAMAGED = "SnapshotDamaged", _warning("The data of a snapshot do not match its checksum.")
    VOLUME_CHANGING = ("VolumeChanging",
        _normal("A replica waits while its volume is changed, as someone asked for: restored, deleted or replaced."))
    VOLUME_CHANGED = "VolumeChanged", _replica("Its volume is changed while it is stopped; it starts again after that.")
    WORKLOAD_ERROR = ("WorkloadError",
        _warning("An action on a workload failed, for one of the reasons of the next table. It is tried again."))
    LOGS_EXPIRED = ("LogsExpired",
        _normal("Logs of removed replicas were deleted, since their time is over."))
    IMAGE_EXPIRED = ("ImageExpired",
        _normal("An image that nothing needs was deleted: `images.keep` is over, or `images.budget` is exceeded."))
    LOG_STORAGE_FAILED = "LogStorageFailed", _warning("The output of the containers of a location cannot be stored.")
    OUTPUT_DROPPED = ("OutputDropped",
        _warning("A container writes faster than its output can be stored: the oldest is dropped, the newest stays."))
    CLOCK_JUMPED = ("ClockJumped",
        _resource("The clock of the host where it runs was set.", "If it happens again, find out what sets it."),
        _warning("The clock of this host was set. Schedules go on from the new time, and run no time that has run. "
                 "What was there before expires once the new time has held for an hour."))
    CLOCK_STABLE = "ClockStable", _normal("The clock of this host was not set for an hour.")
    COMPLETED = ("Completed",
        _container("It ended by itself, with code 0."), _replica("The execution of a cron workload is over."))
    ERROR = "Error", _container("It ended with another code, or with one that is not known.")
    LIVENESS_FAILED = "LivenessFailed", _container("Its liveness probe failed, so it was killed.")
    OUT_OF_MEMORY = "OutOfMemory", _container("It used more memory than its limit.")

    # Failed actions on workloads.
    PERMISSION_DENIED = "PermissionDenied", _workload("The daemon's user may not write, own or hand over a file.")
    STATE_WRITE_FAILED = "StateWriteFailed", _workload("A file cannot be written, for another reason.")
    NO_FREE_PORT = ("NoFreePort",
        _workload("For a replica, every port from `host.firstPort` to `host.lastPort` is in use. For the endpoint of a "
        "workload, its port is, or every one from `host.firstServicePort` to `host.lastServicePort`."))
    TEMPLATE_NOT_FOUND = ("TemplateNotFound",
        _workload("The manifest of an older version is no longer known, so its containers cannot be started again."))
    SECRET_UNAVAILABLE = "SecretUnavailable", _workload("The values of a secret cannot be read on this host.")
    SECRET_UNUSABLE = "SecretUnusable", _workload("A secret has no such key, or its value is not text.")
    MOUNT_REFUSED = "MountRefused", _workload("A volume names nothing that can be mounted, or lies inside another one.")
    VOLUME_IN_USE = ("VolumeInUse",
        _workload("A volume is attached to another replica, or a command that replaces its data is not done; the "
        "message names it."))
    VOLUME_UNAVAILABLE = ("VolumeUnavailable",
        _workload("A volume cannot be attached on this host; the message names what is missing."))
    VOLUME_DAMAGED = "VolumeDamaged", _workload("The data or the record of a volume cannot be read.")
    STORE_MOUNT_FAILED = ("StoreMountFailed",
        _workload("An object store cannot be read, so it is not mounted."),
        _container("The mount of an object store was lost, so it was killed."))
    ARGUMENT_TOO_LONG = "ArgumentTooLong", _workload("An argument is too long once its references are replaced.")
    VARIABLE_TOO_LONG = "VariableTooLong", _workload("A variable is too long once its references are replaced.")
    USER_NOT_FOUND = "UserNotFound", _workload("This host, or an image, has no user of the required name.")
    INVALID_IMAGE_NAME = ("InvalidImageName",
        _workload("The name of an image is not complete or not valid; the message has the form to write."))
    IMAGE_NOT_ALLOWED = ("ImageNotAllowed",
        _workload("No pattern of `images.allowed` fits an image, or its registry has an address of this host, of its "
        "link or of its cloud that no setting names."))
    IMAGE_CHANGED = "ImageChanged", _normal("A tag of a workload with `supportDynamicTags` means another image now.")
    IMAGE_PULL_FAILED = ("ImagePullFailed",
        _warning("An image cannot be pulled; the old version goes on. The message has the words of the registry."),
        _workload("An image cannot be pulled: the message has the image and the words of its registry."))
    IMAGE_PLATFORM_MISMATCH = "ImagePlatformMismatch", _workload("An image is not made for the processor of this host.")
    NO_COMMAND = "NoCommand", _workload("A container has no `command`, and images are not used.")
    PROGRAM_NOT_FOUND = ("ProgramNotFound",
        _workload("The program of a container is not on this host, or not in its image."))
    DIRECTORY_NOT_FOUND = ("DirectoryNotFound",
        _workload("The working directory of a container is not on this host, or not in its image."))
    NOT_PERMITTED = ("NotPermitted",
        _workload("The user of a container may not execute its program, or enter its working directory."))
    PROCESS_LIMIT_REACHED = "ProcessLimitReached", _workload("The kernel starts no further process.")
    LIMITS_FAILED = "LimitsFailed", _workload("The kernel refuses the limits of a container.")
    KILL_FAILED = "KillFailed", _workload("A process is alive after SIGKILL.")
    REMOVAL_FAILED = "RemovalFailed", _workload("The files or the network of a replica cannot be deleted.")
    EXEC_FAILED = "ExecFailed", _workload("A program could not be run beside that of a container.")
    NOT_RUNNING = "NotRunning", _workload("A program was to be run in a container that does not run.")
    ALREADY_RUNNING = "AlreadyRunning", _workload("A container of the same name runs already.")
    PORT_IN_USE = "PortInUse", _workload("Another program listens on a port of a replica; it gets another one.")
    VARIABLE_REFUSED = "VariableRefused", _workload("A variable has a name or a value that no program can be given.")
    IMAGE_NOT_FOUND = "ImageNotFound", _workload("The image of a container is not on this host.")
    RUNTIME_UNAVAILABLE = ("RuntimeUnavailable",
        _workload("Podman does not answer, is too old, or lacks a part. What runs goes on; the rest waits."))
    RUNTIME_FAILED = "RuntimeFailed", _workload("Podman refuses a request; the message has its words.")

    # Clusters.
    CLUSTER_UNREACHABLE = ("ClusterUnreachable",
        _resource("The API server of a cluster does not answer. What runs there goes on.",
                  "See the message; it is tried again."),
        _other("The API server of a cluster does not answer."))
    CREDENTIALS_REFUSED = ("CredentialsRefused",
        _resource("A cluster refuses the credentials of the daemon, or they cannot be used; the message says why.",
                  "Renew what the kubeconfig names; it is read again with each try."),
        _other("A cluster refuses the credentials of the daemon, or they cannot be used."))
    CLUSTER_FORBIDDEN = ("ClusterForbidden",
        _resource("A cluster does not permit the daemon a request; the message has its words.",
                  "`reconciler doctor` lists the missing rights."),
        _other("A cluster does not permit the daemon a request."))
    CLUSTER_BUSY = ("ClusterBusy",
        _resource("A cluster put a request off, or an object changed meanwhile.", "Nothing; it is tried again."))
    CLUSTER_FAILED = ("ClusterFailed",
        _resource("A cluster failed to perform a request; the message has its words.", "See the message."))
    FIELD_CONFLICT = ("FieldConflict",
        _resource("Another program has set fields of an object on a cluster; the message names both.",
                  "Let that program leave the fields, or name them in `cluster.forceConflicts`."))
    FOREIGN_OBJECT = ("ForeignObject",
        _resource("An object of the name exists on a cluster, and this daemon has not made it.",
                  "Delete or rename it, or take it over with the tag `reconciler/adopt`."))
    QUOTA_EXCEEDED = ("QuotaExceeded",
        _resource("A quota of the namespace is used up; the message has its words.", "Raise the quota, or need less."))
    ADMISSION_REFUSED = ("AdmissionRefused",
        _resource("A webhook of the cluster denies an object, or does not answer; the message has its words.",
                  "Correct what it names, or ask who runs the webhook."))
    OBJECT_REFUSED = ("ObjectRefused",
        _resource("A cluster refuses an object; the message names the field.",
                  "Correct it; a field that cannot change needs the tag `reconciler/allow-replace`."))
    KIND_NOT_SERVED = ("KindNotServed",
        _resource("A cluster does not serve a kind of object that is needed.", "Install what serves it."))

    # The daemon, its records and its settings.
    DISK_FULL = ("DiskFull",
        _resource("The disk of the state directory is full; the step waits.", "Make room; the step then proceeds."),
        _source("The disk of the state directory is full. Replicas run on and are restarted, deletes are carried out, "
                "and everything else waits.",
                "Make room there, or delete the workload that filled it. The rest proceeds by itself."),
        _warning("The disk of the state directory is full: only deletes are carried out. One event for each source."),
        _workload("No room is left where the state directory lies."),
        _other("No room is left for the records."))
    DISK_RECOVERED = "DiskRecovered", _normal("The disk of the state directory has free space; what waited proceeds.")
    ENGINE_FAILED = ("EngineFailed",
        _resource("The engine refused the step, or failed: the message says why.", "Nothing; the step is tried again."),
        _warning("A step failed. An event whenever the reason changes, and every tenth time."))
    INTERNAL_ERROR = ("InternalError",
        _resource("The engine met a bug in this program: the message names its place, the log has the traceback.",
                  "Please report it."),
        _source("A run, or a write of the status, met a bug in this program. The last good revision stays applied, and "
                "other sources go on. It is tried again with backoff, and at once at another commit.",
                "Please report it, with the lines of the log about `bug`. Until it is repaired, leave out what the "
                "newest commit added."),
        _warning("A step, a run of a source, or another part of the daemon met a bug in this program."))
    SECRET_LOST = ("SecretLost",
        _warning("The values of a secret can no longer be read on this host. What was applied stays."))
    BACKUP_STALE = ("BackupStale",
        _warning("The newest backup of the records is older than `backups.longestAge`, or there is none."),
        _other("The newest backup of the records is older than `backups.longestAge`, or there is none."))
    BACKUP_FAILED = ("BackupFailed",
        _warning("`reconciler backup` could not make a backup of the records; the message says why."),
        _other("`reconciler backup` could not make a backup of the records; the message says why."))
    BACKUP_RECOVERED = ("BackupRecovered",
        _normal("The records were backed up again, or the settings no longer expect it."))
    BACKUP_TAKEN = "BackupTaken", _other("The newest backup of the records is as young as it should be.")
    SETTINGS_REFUSED = ("SettingsRefused",
        _warning("The settings were changed and have errors. The former ones stay in use."))
    SENT = "Sent", _other("The last message to a channel of `notifications` arrived.")
    SEND_FAILED = ("SendFailed",
        _other("A message to a channel of `notifications` did not arrive, and is sent again; the message says why."))
    SEND_REFUSED = ("SendRefused",
        _other("The receiver of a channel of `notifications` refuses a message, which is not sent again."))
    LOADED = "Loaded", _other("The settings are in use.")
    INVALID_SETTINGS = "InvalidSettings", _other("The command line or the settings are wrong.")
    PLAN_CHANGED = "PlanChanged", _other("A run would not do what the saved plan says, and did nothing.")
    RECORDS_UNAVAILABLE = ("RecordsUnavailable",
        _other("The records cannot be opened or written, or a newer program made them."))
    RECORDS_CORRUPT = ("RecordsCorrupt",
        _other("The records hold a row that no reconciler wrote; the message names its table."))
    LOCKED = "Locked", _other("Another process holds the state directory.")
    STATE_LOST = ("StateLost",
        _other("The state directory, or the lock in it, was deleted or replaced while the daemon worked."))
    REFUSED = "Refused", _other("A rule refuses what a command asks for.")
    FAILED = "Failed", _other("Any other failure that is not a bug.")
    INVALID_COMMAND = "InvalidCommand", _other("An engine does not support the command in this form.")
    NOT_FOUND = "NotFound", _other("What a command names does not exist.")
    VOLUME_NOT_FOUND = "VolumeNotFound", _other("The volume of a command does not exist.")
    SNAPSHOT_HOOK_FAILED = ("SnapshotHookFailed",
        _other("A command before or after a snapshot (`reconciler/pre-snapshot`, `reconciler/post-snapshot`) failed."))
    SNAPSHOT_NOT_FOUND = "SnapshotNotFound", _other("The snapshot of a command does not exist.")
    SNAPSHOT_EXISTS = "SnapshotExists", _other("A snapshot of that name exists.")
    DISK_OVERCOMMITTED = ("DiskOvercommitted",
        _resource("The volumes of a location may become larger together than their disk.",
                  "Use a larger disk, or fewer or smaller volumes; alert on the free space of the disk."))
    FREEZE_TIMEOUT = ("FreezeTimeout",
        _other("A copy would keep a replica from writing for longer than `host.freezeLimit`, so it stops for that."))
    HOST_DISK_LOW = ("HostDiskLow",
        _resource("A volume neither grows nor gets a snapshot, since the disk has less free than `host.diskReserve`.",
                  "Do what the message says frees most, or reserve less with `host.diskReserve`."),
        _warning("A volume neither grows nor gets a snapshot, since the disk has less free than `host.diskReserve`."),
        _other("The disk of the volumes has less free than `host.diskReserve`; the message names what makes room."))
    # fmt: on
