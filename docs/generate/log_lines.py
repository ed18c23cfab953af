"""The lines of the daemon's log, as docs/status.md lists them."""

from __future__ import annotations

LINES = {
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
    "images": "A warning: a record of digests or of pulled images is damaged; the message says what that means.",
    "reading": "Debug: a command is carried out for a reader. Facts: user, command.",
    "watch_failed": "A local source, or an engine, cannot be watched and is only looked at now and then. Facts: "
    "source, message.",
    "location": "What is at a location cannot be seen (a warning), or can again. Facts: location, reachable, message.",
    "status": "The status branch can be written again, or (a warning) cannot. Facts: source, pushed, reason, message.",
    "tasks_abandoned": "An error: something did not end in time when it was closed, and is left to itself. Facts: "
    "owner, tasks (their names).",
    "exit_forced": "An error: the daemon's work is done and written, but its process did not end by itself, so it is "
    "ended. Facts: tasks, threads (what still ran), seconds.",
    "disk": "The disk of the state directory is full (an error), or has free space again. Facts: full, message.",
    "fetch": "Debug: a fetch during a run failed. Facts: source, message.",
}
"""Line of the daemon's log → when it is written, and its facts."""
