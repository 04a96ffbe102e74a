#!/bin/sh
# Runs each fuzz target for some seconds, from its corpus; what it finds is left in out/fuzz.
# usage: tools/fuzz.sh BUILD SECONDS
build=$1
seconds=$2
passed=0
failed=0
ninja -C "$build" || exit 1
for target in "$build"/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=${target##*/fuzz_}
    mkdir -p "out/fuzz/$name"
    echo "fuzz: $name for $seconds s"
    if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="out/fuzz/$name-" "out/fuzz/$name" \
        "tests/corpus/$name"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "fuzz: $name failed; keep its input as a file of tests/corpus/$name"
    fi
done
echo "$passed passed, $failed failed"
exit $((failed > 0))
