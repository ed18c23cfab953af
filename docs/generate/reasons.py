"""Every word that says why: reasons of conditions and events, and the lines of the log."""

from __future__ import annotations

TYPES = {
    "Ready": "Of a resource: it is as Git wants it, at every location, and healthy. Of a source: its last run did all "
    "that was asked for.",
    "Reconciling": "More will happen without anybody doing anything. Only there where it is so.",
    "Stalled": "It does not mend by itself within a run: tried as often as `retry.attempts` says, or not worth trying "
    "again. Only there where it is so.",
    "Placed": "False: the settings of this host bind no engine to locations of the GVC. Only there where it is so.",
    "NotEnforced": "Something that its manifest asks for has no effect where it runs: the message says "
    "what, and where. It is ready all the same. Only there where it is so.",
    "ClockJumped": "The clock of the host where it runs was set within the last hour. No wait or probe goes by it. "
    "Only there where it is so.",
    "SourceReachable": "Of a source: its newest revision could be read.",
    "SourceStale": "Of a source: it could not be read for longer than `stale`.",
    "Suspended": "An operator wants nothing of a source, or nothing about a resource, done. Only there where it is so.",
    "DiskFull": "Of a source: the disk of the state directory is full. Only there where it is so.",
    "Pinned": "Of a source: an operator holds it at an older revision. Only there where it is so.",
    "StatusPushed": "Of a source, in the records alone: the last write of its status branch arrived.",
    "SettingsLoaded": "Of the daemon, in the records alone: the settings of its file are in use.",
    "StatusStale": "Of a source, in the records alone: no write of its status branch arrived for longer than `stale`.",
}
"""Type of a condition → what it says where it holds."""

RESOURCES = {
    "Applied": ("Done, and healthy.", "Nothing."),
    "Recorded": (
        "Done; the engine `recorded` has its locations, or some of them, and nothing runs there.",
        "Nothing, or bind the locations to another engine.",
    ),
    "Pending": ("In Git, and not or not yet everywhere applied.", "Nothing; the next run does it."),
    "Loading": ("Applied, and on its way; the message says how far at each location.", "Nothing."),
    "Unhealthy": (
        "Applied, and not well; the message says what fails.",
        "Look at the message, `reconciler top` and `reconciler logs KEY`.",
    ),
    "NotEnforced": ("What the message names has no effect where it runs.", "Nothing, or leave it out."),
    "ClockJumped": ("The clock was set where it runs.", "Look at what sets it, if it comes again."),
    "HealthUnknown": ("Applied; nobody can tell how it is.", "Look at its location."),
    "Deleting": ("No longer in Git, and on its way out.", "Nothing."),
    "Retained": (
        "No longer in Git, and not deleted: protected, kept by a tag, needed by what stays, or pruning is off.",
        "Nothing, or remove the protection.",
    ),
    "Orphaned": (
        "Its source is not in the settings any more. It stays as it is, and nothing is done about it.",
        "`reconciler adopt KEY --source NAME`, or put the source back.",
    ),
    "LocationNotBound": (
        "The GVC names locations that the settings of this host do not.",
        "Add them under `locations`, or leave them to the host that has them.",
    ),
    "Suspended": ("An operator wants nothing done about it.", "`reconciler resume KEY`, or wait for its end."),
    "ApprovalRequired": (
        "A step waits: it deletes volumes, replaces a resource, is one of too many deletes, or `approval` asks for it.",
        "Read `reconciler plan`, then `reconciler approve DIGEST`. Deletes beyond the budget of an hour also go by "
        "themselves, at the time that the message names.",
    ),
    "DependencyWaiting": ("What it depends on waits itself.", "See to that one."),
    "Terminating": ("It is to be gone, and its last replicas are on their way out.", "Nothing."),
    "DependencyFailed": ("What it depends on could not be applied.", "See to that one."),
    "DependencyNotHealthy": (
        "Its tag `reconciler/depends-on` names something that is not healthy.",
        "See to that one.",
    ),
    "Drifted": (
        "Somebody changed it at its location, and not in Git.",
        "Nothing, it is brought back; or see `reconciler drift` for what may differ.",
    ),
    "DriftConflict": (
        "It was brought back as often as `drift.mostHeals` allows within an hour, and changed again each time.",
        "Find out who changes it, then `reconciler retry KEY`; or let it differ, see `reconciler drift`.",
    ),
    "EngineFailed": ("The engine refused or failed the step; the message says why.", "It is tried again."),
    "InternalError": (
        "The engine met a bug in this program; the message has its place, the log the calls that led to it.",
        "Please report it.",
    ),
}
"""Reason in the conditions of a resource → what it means, and what to do."""

SOURCES = {
    "Applied": ("The last run did all that was asked for.", "Nothing."),
    "InvalidRevision": (
        "The revision has errors and was refused; the last good one stays applied.",
        "`reconciler validate` lists them; push a corrected commit.",
    ),
    "InvalidFiles": (
        "Files of the revision have errors and stay as they were (`onInvalid: skip`); the rest is applied.",
        "`reconciler validate` lists them; push a corrected commit.",
    ),
    "ApprovalRequired": ("Steps of the last run wait.", "Read `reconciler plan`, then `reconciler approve DIGEST`."),
    "StepsFailed": ("Steps of the last run failed; they are tried again.", "See the resources that are not ready."),
    "StepsWaiting": ("Steps of the last run wait for others, or made way.", "Nothing, or see the resources."),
    "Suspended": ("Who suspended it, how long and why.", "`reconciler resume SOURCE`, or wait for its end."),
    "DiskFull": (
        "The disk of the state directory is full. What runs goes on and is restarted, deletes are carried out, and all "
        "else waits.",
        "Make room there, or delete the workload that took it. The rest goes on by itself.",
    ),
    "Pinned": ("Who holds it where, and why.", "`reconciler resume SOURCE` to follow the branch again."),
    "Fetched": ("Its newest revision could be read.", "Nothing."),
    "SourceUnreachable": ("The remote does not answer, refuses the login, or takes too long.", "See the message."),
    "SourceNotFound": (
        "The repository, branch, tag, commit or path is not there. Nothing is deleted for that.",
        "Bring it back, or correct the settings.",
    ),
    "SourceEmpty": (
        "The path holds no manifest. Nothing is deleted for that.",
        "Correct path, include and exclude, or delete the resources one by one.",
    ),
    "SourceRewritten": (
        "The branch moved to a commit that does not contain the last one.",
        "Push one that does, or set `allowRewrite`.",
    ),
    "SourceUnverified": (
        "The commit or tag is not signed, or not by whom the settings trust. The last good revision stays applied.",
        "Sign it, or trust its key: [signatures.md](signatures.md).",
    ),
    "SourceFailed": ("Git cannot give or take what it should; the message says what.", "See the message."),
    "PushConflict": (
        "Others moved the status branch at the same time, again and again.",
        "Nothing; it is tried again.",
    ),
    "Pushed": ("The status branch is up to date.", "Nothing."),
    "InternalError": (
        "A run, or a write of the status, met a bug in this program. The last good revision stays applied, and other "
        "sources go on. It is tried again with backoff, and at once at another commit.",
        "Please report it, with the lines of the log about `bug`. Until it is repaired, leave out what the newest "
        "commit brought.",
    ),
}
"""Reason in the conditions of a source → what it means, and what to do."""

EVENTS = {
    "Created": "Normal. A resource was made at a location, or recorded.",
    "Updated": "Normal. It was changed; the message names the fields.",
    "Replaced": "Normal. It was deleted and made anew.",
    "Deleted": "Normal. It was deleted.",
    "ApprovalRequired": "Normal. Steps of a source wait, for the digest in the message. Told when others wait.",
    "Approved": "Normal. Somebody lets held steps go; told of the source.",
    "Suspended": "Normal. Somebody suspended it; the message says how long and why.",
    "Resumed": "Normal. Somebody ended a suspension or a rollback, or the time of a suspension is over.",
    "DiskFull": "Warning. The disk of the state directory is full: only deletes are carried out. Told of each source.",
    "DiskRecovered": "Normal. The disk of the state directory has room again, and what waited for it is done.",
    "RolledBack": "Normal. Somebody holds the source at an older revision.",
    "RetryRequested": "Normal. Somebody wants failed steps tried again at once.",
    "Orphaned": "Normal. Somebody lets it stay when it leaves Git, or its source is not in the settings any more.",
    "Adopted": "Normal. Somebody treats it like any other again, or let another source own it.",
    "DriftDetected": "Warning. Something is otherwise at its location than applied; the message names the fields.",
    "DriftHealed": "Normal. It was brought back to what was applied.",
    "DriftResolved": "Normal. It differs no more, and nothing was done for that.",
    "DriftConflict": "Warning. It was brought back again and again, and is left alone from now on.",
    "RestartRequested": "Normal. Somebody wants new replicas of a workload to take over.",
    "Healthy": "Normal. All of it is well now, at the location that is named.",
    "Unhealthy": "Warning. It is not well any more; the message says what fails.",
    "ContainerEnded": "Warning. A container ended of itself, with the code in the message. The first end is told, and "
    "then every tenth in a row.",
    "StartFailed": "Warning. A container could not be started; the message says why. Told as often.",
    "Evicted": "Warning. A replica used more ephemeral storage than it may, was ended at once and is replaced.",
    "PostStartFailed": "Warning. A postStart hook failed; the container runs on, and `top` shows it too.",
    "Scaled": "Normal. Autoscaling asks for another number of replicas; the message has the metric and its target.",
    "PreStopFailed": "Warning. A preStop hook failed; the replica ends all the same.",
    "WorkloadError": "Warning. Nothing can be done about a workload at the moment, for one of the reasons below; it is "
    "tried again.",
    "LogStorageFailed": "Warning. What the containers of a location write cannot be stored.",
    "LocationUnreachable": "Warning. What is at a location cannot be seen, so that nothing is concluded about it.",
    "LocationReachable": "Normal. It can be seen again.",
    "ClockStable": "Normal. The clock of this host was not set for an hour.",
    "ClockJumped": "Warning. The clock of this host was set; nothing at the location goes by it.",
    "EngineFailed": "Warning. A step failed. Told when the reason changes, and then every tenth time.",
    "InternalError": "Warning. A step, a run of a source, or another part of the daemon met a bug in this program.",
    "Recovered": "Normal. A trouble of a source is over: its revision is no longer refused, it can be read again, or "
    "a bug no longer ends its runs. The message repeats it.",
    "InvalidRevision": "Warning. A revision is refused, told of its source; and each finding, of its resource, 100 "
    "at most a revision.",
    "InvalidFiles": "Warning. The same where files with errors are skipped.",
    "SourceUnreachable": "Warning. The source cannot be read, for this reason; so for the five below.",
    "SourceNotFound": "Warning.",
    "SourceEmpty": "Warning.",
    "SourceRewritten": "Warning.",
    "SourceUnverified": "Warning.",
    "SourceFailed": "Warning.",
    "SecretLost": "Warning. The values of a secret can no longer be read on this host. What was applied stays.",
    "SettingsRefused": "Warning. The settings were changed and cannot be taken over; the former ones go on.",
}
"""Reason of an event → its type and what happened."""

ELSEWHERE = {
    "Preempted": "A step was not begun, since the daemon stops or a newer revision is there.",
    "PlanChanged": "A run would not do what the saved plan says, and did nothing.",
    "RecordsUnavailable": "The records cannot be opened or written, or a newer program made them.",
    "DiskFull": "No room is left for the records.",
    "RecordsCorrupt": "The records hold a row that no reconciler wrote; the message names its table.",
    "Locked": "Another process works on the state directory.",
    "StateLost": "The state directory, or the lock in it, was deleted or replaced while the daemon worked.",
    "Refused": "A rule says no to what a command asks for.",
    "InvalidSettings": "The command line or the settings are wrong.",
    "Loaded": "The settings are in use.",
    "Failed": "Anything else that was expected to be possible.",
    "InvalidCommand": "An engine was asked for an operation that it does not take in this form.",
    "NotFound": "An engine was asked for an operation on something that is not at its location.",
    "VolumeNotFound": "The same, for a volume.",
    "SnapshotNotFound": "The same, for a snapshot.",
    "SnapshotExists": "A snapshot of that name exists.",
}
"""Reasons that no condition carries → what they mean."""

CONTAINERS = {
    "Completed": "It ended by itself, with 0.",
    "Error": "It ended with another code, or nobody saw with which.",
    "LivenessFailed": "Its liveness probe failed, so it was ended.",
    "OutOfMemory": "It used more memory than its manifest allows it.",
    "StartFailed": "Its program could not be started.",
}
"""Why a container ended last → what that means."""

REPLICAS = {
    "Replaced": "A replica of a newer version, or one that was asked for by a restart, has taken over.",
    "ScaledDown": "Fewer replicas are wanted.",
    "Suspended": "The workload is suspended by its options.",
    "Deleted": "The workload is gone.",
}
"""Why a replica is on its way out → what that means."""

HOST = {
    "DiskFull": "No room is left where the state directory lies.",
    "PermissionDenied": "The daemon's user may not write, own or hand over a file.",
    "StateWriteFailed": "A file cannot be written for another reason.",
    "NoFreePort": "Every port from `host.firstPort` to `host.lastPort` is taken.",
    "TemplateNotFound": "What an older version was made of is no longer known, so nothing of it can be started again.",
    "SecretUnavailable": "The values of a secret cannot be read on this host.",
    "SecretUnusable": "A secret cannot be given as it is asked for: no such key, or not text.",
    "MountRefused": "A volume names nothing that can be mounted, or lies inside another one.",
    "ArgumentTooLong": "An argument is too long once what it embeds is put in.",
    "VariableTooLong": "A variable is too long once what it embeds is put in.",
    "UserNotFound": "This host has no user of the name in `host.defaultUser`.",
    "NoCommand": "A container has no `command`, and images are not used.",
    "ProgramNotFound": "The program of a container is not on this host.",
    "DirectoryNotFound": "The working directory of a container is not on this host.",
    "NotPermitted": "The user of a container may not execute its program, or enter its working directory.",
    "ProcessLimitReached": "The kernel starts no more processes.",
    "LimitsFailed": "The kernel does not take the limits of a container.",
    "KillFailed": "A process outlives SIGKILL.",
    "RemovalFailed": "What was kept of a replica on disk cannot be deleted.",
    "ExecFailed": "A probe or a hook could not be run.",
    "NotRunning": "It was to be run in a container that had ended.",
    "AlreadyRunning": "A container was to be started where another of its name runs.",
}
"""Why something of a workload cannot be done on this host → what that means."""

LOG = {
    "started": "The daemon holds its state directory. Facts: state, sources.",
    "stopped": "It has ended.",
    "reconciled": "How a run of a source ended. Facts: source, seconds, reason (of the wake-up), outcome, revision, "
    "how many resources were created, updated and so on, message where it was refused, skipped where files with errors "
    "are, approve where steps wait. At level debug where it repeats the one before.",
    "journal_replayed": "Steps that a crash had left open were done again. Facts: steps.",
    "records": "The records cannot be written; nothing goes on until they can. Facts: reason, message.",
    "bug": "A bug in this program, once for each place and revision, and without its text, which may hold secrets. "
    "Facts: part (what met it), revision, error (its type), place, traceback.",
    "event_loop": "A warning of the event loop. Facts: message.",
    "settings": "The settings were changed, and are taken over or (a warning) are not: the former ones go on. Facts: "
    "loaded, sources, message.",
    "readers": "A warning: the group `readers` cannot be let in. Facts: group, message.",
    "replicas": "A warning, once: systemd does not move containers into the service of theirs. Facts: unit, message.",
    "reading": "Debug: a command is carried out for a reader. Facts: user, command.",
    "watch_failed": "A local source, or an engine, cannot be watched and is only looked at now and then. Facts: "
    "source, message.",
    "location": "What is at a location cannot be seen (a warning), or can again. Facts: location, reachable, message.",
    "status": "The status branch can be written again, or (a warning) cannot. Facts: source, pushed, reason, message.",
    "tasks_abandoned": "An error: something did not end in time when it was closed, and is left to itself. Facts: "
    "owner, tasks (their names).",
    "exit_forced": "An error: the daemon's work is done and written, but its process did not end by itself, so it is "
    "ended. Facts: tasks, threads (what still ran), seconds.",
    "disk": "The disk of the state directory is full (an error), or has room again. Facts: full, message.",
    "fetch": "Debug: a fetch during a run failed. Facts: source, message.",
}
"""Line of the daemon's log → when it is written, and its facts."""
