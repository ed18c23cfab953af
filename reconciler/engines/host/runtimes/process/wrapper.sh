# Runs the program of a container as its only child, and records the exit code. The daemon writes this script to the
# shell's stdin, preceded by the program and its arguments; nothing runs before the whole script has arrived.
# stdout is the file for the output, stderr the file for the exit code. A `-` means that the script began. The code
# follows, with a `!` if the program could not start: only then the child shell survives to report it (bash never does).
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
# Processes that left the program's session became children of this shell when their parent ended. They must not outlive
# the program. Their own children follow them here. The empty subshell makes the shell reap them. The kernel may omit
# some from the list while others end, so it must be empty three times in a row.
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
