# Runs the program of a container as the only one below it, and records how it ended. The daemon writes this script to
# the shell's stdin, with the program and its arguments in front: nothing of it runs before all of it has arrived.
# stdout is the file for the output, stderr the file for the exit code: a `-` says that it began, the code follows, with a
# `!` where the program could not be begun: only then a shell is left below that can say so (bash never does).
exec 3>&2 2>/dev/null
printf %s - >&3
failed=
trap : TERM INT HUP QUIT
trap failed=! USR1
(
    trap 'kill -USR1 $$' EXIT
    exec "$@" </dev/null 2>&1 3>&-
)
code=$?
# What has left the program's session belongs to this shell since its parent ended, and must not outlive the program.
# Their own children come here in turn. The empty subshell lets the shell reap them. The kernel may leave some out of the
# list while others end, so it has to be empty three times in a row.
turns=200
empty=0
while [ "$turns" -gt 0 ] && [ "$empty" -lt 3 ]; do
    orphans=
    read -r orphans <"/proc/$$/task/$$/children"
    if [ -n "$orphans" ]; then
        empty=0
        kill -KILL $orphans
        (:)
    else
        empty=$((empty + 1))
    fi
    turns=$((turns - 1))
done
printf %-4s "$code$failed" >&3
exit 0
