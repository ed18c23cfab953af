# Runs the program that its arguments name as the only one of a container, and records how it ended. Its stdin is a
# pipe from the daemon, stdout the file for the output, stderr the file for the exit code, which gets a `!` behind the
# code where the program could not be begun: only then a shell is left below that can say so (bash never does). Where
# the daemon dies before it says go, that file says `never`.
IFS= read -r word
[ "$word" = go ] || {
    printf never >&2
    exit 0
}
exec 3>&2 2>/dev/null
failed=
trap : TERM INT HUP QUIT
trap failed=! USR1
(
    trap 'kill -USR1 $$' EXIT
    exec "$@" </dev/null 2>&1 3>&-
)
printf %s "$?$failed" >&3
