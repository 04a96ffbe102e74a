#!/bin/sh
# Runs the tests of a build folder and counts their cases; the last line is "N passed, N failed".
# usage: tools/test.sh BUILD [arguments of `meson test`]
build=$1
shift
rm -f "$build"/meson-logs/testlog*.txt
meson test -C "$build" --print-errorlogs "$@"
status=$?

# A case is a cmocka test or a shell test's "ok" line; a program that shows neither is one case.
cat "$build"/meson-logs/testlog*.txt 2>/dev/null | awk -v status=$status '
    function settle() {
        if (bad && !no)
            no = 1
        else if (seen && !yes && !no)
            yes = 1
        passed += yes
        failed += no
        seen = bad = yes = no = 0
    }
    /^=+ +[0-9]+\/[0-9]+ +=+$/ { settle(); seen = 1 }
    /^result: / { bad = !/exit status (0|77)$/ }
    /^\[  PASSED  \] [0-9]+ test/ { yes += $4 }
    /^\[  FAILED  \] [0-9]+ test/ { no += $4 }
    /^ok / { yes++ }
    /^not ok / { no++ }
    END {
        settle()
        if (status != 0 && failed == 0)
            failed = 1
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0
    }'
