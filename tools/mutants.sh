#!/bin/sh
# Plants each fault of tests/mutants/ in a copy of the tree and expects the test it names to fail.
# A patch starts with lines "# test: NAME..." (tests/test_NAME.c or tests/cli/NAME.sh) and
# "# breaks: PROMISE". The last line is "N passed, N failed": a mutant passes when it is caught.
# usage: tools/mutants.sh [PART-OF-A-NAME...]
home=$PWD/out/mutants
tree=$home/tree
build=$home/build
log=$home/log
plant="patch -s -p1 -F0 -d $tree" # at its exact context, wherever that has moved
limit=120 # seconds a test may take: a mutant that hangs is caught

# Brings the copy up to date by content: an untouched file keeps its time, so its object stays, and
# one that a mutant changed gets a new one.
list_files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -co --exclude-standard
    else
        find . -path ./out -prune -o -path './build*' -prune -o -type f -print | sed 's|^\./||'
    fi | sort
}
mkdir -p "$tree"
list_files >"$home/files"
(cd "$tree" && find . -type f | sed 's|^\./||' | sort) | comm -13 "$home/files" - |
    while read -r file; do rm -f "$tree/$file"; done
while read -r file; do
    [ ! -f "$file" ] || cmp -s "$file" "$tree/$file" && continue
    mkdir -p "$tree/$(dirname "$file")"
    cp "$file" "$tree/$file"
done <"$home/files"
if [ -f "$build/build.ninja" ]; then
    meson setup --reconfigure "$build" "$tree" >"$log" || exit 1
else
    meson setup -Dwerror=false "$build" "$tree" >"$log" || exit 1
fi

# The value of a header line of the patch at hand.
header() {
    sed -n "s/^# $1: *//p" "$patch"
}

# Builds what a test needs. Mutants are built one by one, so that only their object is compiled.
build_test() {
    if [ -f "$tree/tests/test_$1.c" ]; then
        ninja -C "$build" "tests/test_$1" >"$log" 2>&1
    else
        [ -f "$tree/tests/cli/$1.sh" ] && ninja -C "$build" loco >"$log" 2>&1
    fi
}

run_test() {
    if [ -f "$tree/tests/test_$1.c" ]; then
        (cd "$tree" && timeout $limit "$build/tests/test_$1") >"$log" 2>&1
    else
        (cd "$tree" && STOP_AT_FIRST=1 timeout $limit sh "tests/cli/$1.sh" "$build/loco") \
            >"$log" 2>&1
    fi
}

# Prints what became of the patch at hand: caught, SURVIVED, or why nothing can be said.
judge() {
    tests=$(header test)
    [ -n "$tests" ] && [ -n "$(header breaks)" ] || { echo "BROKEN: lacks its header"; return; }
    for test in $tests; do
        case " $sound " in
        *" $test "*) ;;
        *)
            build_test "$test" || { echo "BROKEN: $test does not build or is missing"; return; }
            run_test "$test" || { echo "BROKEN: $test fails without any mutant"; return; }
            ;;
        esac
    done
    $plant --dry-run <"$patch" >"$log" 2>&1 || { echo "BROKEN: does not apply"; return; }
    $plant <"$patch"
    verdict=SURVIVED
    for test in $tests; do
        build_test "$test" || { verdict="BROKEN: does not compile"; break; }
        run_test "$test" || { verdict="caught by $test"; break; }
    done
    $plant -R <"$patch"
    echo "$verdict"
}

sound= # tests known to pass without a mutant
passed=0
failed=0
for patch in tests/mutants/*.patch; do
    name=${patch##*/}
    name=${name%.patch}
    wanted=$#
    for part in "$@"; do
        case $name in *"$part"*) wanted=0 ;; esac
    done
    [ "$wanted" -eq 0 ] || continue
    verdict=$(judge)
    case $verdict in
    BROKEN*without*) ;;
    *) sound="$sound $(header test | tr '\n' ' ')" ;;
    esac
    case $verdict in
    caught*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%-32s %-28s %s\n' "$name" "$verdict" "$(header breaks)"
done
echo "$passed passed, $failed failed"
exit $((failed > 0))
