# What shell tests share: cases that print "ok - what" or "not ok - what", a folder to write in.
# Source it from the repository root: . tests/shell.sh. End with `finish`.

failed=0
scratch=$(mktemp -d)
background= # pid of a running process that must not outlive the script
trap '[ -z "$background" ] || kill -KILL $background 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 143' INT TERM # so that EXIT is run

# verdict STATUS WHAT: one case. With STOP_AT_FIRST set, the first that fails ends the script.
verdict() {
    if [ "$1" -eq 0 ]; then
        echo "ok - $2"
    else
        echo "not ok - $2"
        failed=$((failed + 1))
        [ -z "$STOP_AT_FIRST" ] || exit 1
    fi
}

# works WHAT COMMAND...: the command exits with 0. Its output lies in $scratch/out and /err.
works() {
    what=$1
    shift
    "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    [ $status -eq 0 ] || sed -s 's/^/    /; $a\' "$scratch/out" "$scratch/err"
    verdict $status "$what"
}

# refuses WHAT STATUS TEXT COMMAND...: exits with that status, and stderr is exactly that text.
refuses() {
    what=$1 want_status=$2 want=$3
    shift 3
    "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    got=$(cat "$scratch/err")
    if [ $status -eq "$want_status" ] && [ "$got" = "$want" ]; then
        verdict 0 "$what"
    else
        printf '    wanted %d: %s\n    got    %d: %s\n' "$want_status" "$want" $status "$got"
        verdict 1 "$what"
    fi
}

# says WHAT TEXT: the last command's output or error holds this text.
says() {
    if grep -qF -- "$2" "$scratch/out" "$scratch/err"; then
        verdict 0 "$1"
    else
        sed -s 's/^/    /; $a\' "$scratch/out" "$scratch/err"
        verdict 1 "$1: '$2' is not said"
    fi
}

finish() {
    exit $((failed > 0))
}
