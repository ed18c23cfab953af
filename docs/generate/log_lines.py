"""The lines of the daemon's log, as docs/status.md lists them."""

from __future__ import annotations

LINES = {
    "started": "The daemon holds its state directory. Facts: state, sources.",
    "stopped": "The daemon has ended.",
    "reconciled": "A run of a source ended. Facts: source, seconds, reason (of the wake-up), outcome, revision, the "
    "numbers of created, updated and other resources, message (if refused), skipped (if files have errors), approve "
    "(if steps wait). At level debug if it repeats the previous line.",
    "journal_replayed": "Steps that a crash left open were repeated. Facts: steps.",
    "records": "The records cannot be written; all work waits until they can. Facts: reason, message.",
    "bug": "A bug in this program, once for each place and revision, and without its text, which may hold secrets. "
    "Facts: part (of the program), revision, error (its type), place, traceback.",
    "event_loop": "A warning of the event loop. Facts: message.",
    "settings": "The settings were changed, and are loaded or (a warning) refused: the old ones stay in force. Facts: "
    "loaded, sources, message.",
    "progress": "A long work goes on, such as the first read of a repository; a line each 10 seconds. Facts: what, "
    "done, total.",
    "locations": "`reconciler up` has bound locations that a commit names. Facts: bound, settings (the file).",
    "readers": "A warning: the group `readers` cannot get access. Facts: group, message.",
    "replicas": "A warning, once: systemd does not move containers into their own service. Facts: unit, message.",
    "registry_unreachable": "A warning: a host that an image names does not answer as a registry; users are told only "
    "that. Facts: host, cause.",
    "podman_service_started": "The daemon has started a Podman service of its own, as none answers. Fact: socket.",
    "podman_service_ended": "A warning: that service has ended by itself; it is started again. Facts: code, error.",
    "images": "A warning: a record of digests or of pulled images is damaged; the message has the consequences.",
    "api": "The HTTP API is served, cannot be (a warning), or its process ended (an error). Facts: address, code, "
    "group, id, message.",
    "metrics": "The metrics of workloads are served, or (a warning) cannot be. Facts: address, message.",
    "traces": "The receiver of traces takes them again, or (a warning) does not, or there are none. Facts: message.",
    "watch_failed": "A local source, an engine or all watched files cannot be watched and are only polled. Facts: "
    "source, message.",
    "location": "A location cannot be observed (a warning), or can again. Facts: location, reachable, message.",
    "status": "The status branch can be written again, or (a warning) cannot. Facts: source, pushed, reason, message.",
    "notification": "Messages to a channel arrive again, or (with a reason) one did not: it is tried again, or was "
    "refused. Or (a warning) a forge takes no deployments, or was removed while commits waited there. Facts: channel, "
    "sent, reason, message.",
    "heartbeat": "Signs of life arrive, or do not. Facts: sent, message.",
    "notifications": "A warning: the outbox of notifications cannot be read or written; it is tried again. Facts: "
    "reason, message.",
    "pull_requests": "The pull requests of a source are read again, or (a warning) one of them, or all, cannot be read "
    "or written; it is tried again. Facts: source, forge, number, message.",
    "upkeep": "A warning: the status branch cannot be packed, or the cache not swept; it is tried again later. Facts: "
    "reason, message.",
    "tasks_abandoned": "An error: tasks did not end in time when their owner closed, and were abandoned. Facts: "
    "owner, tasks (their names).",
    "dataplane_chosen": "A warning: the installed HAProxy has a problem, so `dataplane: auto` uses the built-in data "
    "plane, or stays with a HAProxy that serves already. Facts: location, name (the data plane), why.",
    "exit_forced": "An error: the daemon's work is done and written, but its process did not end by itself, so it was "
    "terminated. Facts: tasks and threads (that still ran), seconds.",
    "disk": "The disk of the state directory is full (an error), or has free space again. Facts: full, message.",
    "backup": "The records are not backed up as `backups` expects (a warning), or are again. Facts: reason, message.",
    "fetch": "Debug: a fetch during a run failed. Facts: source, message.",
}
"""Line of the daemon's log → when it is written, and its facts."""
