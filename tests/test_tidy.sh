#!/bin/sh
# tools/tidy sees each kind of violation when it is planted in a small tree that is clean otherwise.
# usage: test_tidy.sh PATH-OF-TIDY, from the repository root
tidy=$1
. tests/shell.sh
tree=$scratch/tree

# A clean tree of two modules.
plant() {
    rm -rf "$tree"
    mkdir -p "$tree/src/low" "$tree/src/high" "$tree/tests"
    cat >"$tree/src/LAYERS" <<'END'
low  L0 :       sym lo
high L1 : low
door clock low/time.c : time.h time() tick*
banned : strcpy() assert.h
END
    for mod in low high; do
        {
            printf '/* Essay.\n * 2\n * 3\n * 4\n * 5\n * 6\n * 7\n * 8\n * 9\n */\n'
            printf '#pragma once\n\nint %s_one(void);\n' $mod
        } >"$tree/src/$mod/$mod.h"
        printf '/* Code. */\n#include "%s/%s.h"\n\nint %s_one(void)\n{\n    return 1;\n}\n' \
            $mod $mod $mod >"$tree/src/$mod/$mod.c"
    done
}

# sees RULE LINE FILE WHAT: with the planted fault, tidy complains of just this, at this place.
sees() {
    "$tidy" "$tree" >"$scratch/out" 2>"$scratch/err"
    status=$?
    if [ $status -eq 1 ] && grep -q "^$3:$2: $1: " "$scratch/out" &&
        [ "$(wc -l <"$scratch/out")" -eq 2 ]; then
        verdict 0 "$4"
    else
        sed 's/^/    /' "$scratch/out" "$scratch/err"
        verdict 1 "$4"
    fi
    plant
}

add() { # FILE LINE...: appends lines
    file=$tree/$1
    shift
    printf '%s\n' "$@" >>"$file"
}

plant
works "a clean tree passes" "$tidy" "$tree"

sed -i 's|#include "low/low.h"|&\n#include "high/high.h"|' "$tree/src/low/low.c"
sees layer 3 src/low/low.c "an include against the layers"
sed -i 's|#include "high/high.h"|&\n#include "low/low_int.h"|' "$tree/src/high/high.c"
sees layer 3 src/high/high.c "another module's private header"
mkdir "$tree/src/wild" && add src/wild/a.c '/* A. */'
sees layer 1 src/wild/a.c "a file of no module"
sed -i 's|#include "high/high.h"|#include <stdio.h>\n&|' "$tree/src/high/high.c"
sees first-include 2 src/high/high.c "a first include that is not the module's own"
add src/high/high.c 'static long now = time (0);'
sees door 8 src/high/high.c "a call through another's door"
add src/high/high.c 'static long now = tick_count;'
sees door 8 src/high/high.c "a name with a door's prefix"
sed -i 's|#include "high/high.h"|&\n#include <time.h>|' "$tree/src/high/high.c"
sees door 3 src/high/high.c "a door's include"
add tests/a.c '/* A. */' 'char *p = strcpy(q, r);'
sees banned 2 tests/a.c "a banned call, in tests too"
sed -i 's|#include "high/high.h"|&\n#include <assert.h>|' "$tree/src/high/high.c"
sees banned 3 src/high/high.c "a banned include"

add src/low/low.c "$(printf '// %0100d' 1)"
sees long-line 8 src/low/low.c "a line over 100 columns"
add src/low/low.c "$(printf '\tint x;')"
sees tab 8 src/low/low.c "a tab"
add src/low/low.c 'int x; '
sees trailing-space 8 src/low/low.c "a trailing blank"
printf '// end' >>"$tree/src/low/low.c"
sees no-newline 8 src/low/low.c "a missing newline"
seq 500 | sed 's|^|// |' >>"$tree/src/low/low.c"
sees long-file 501 src/low/low.c "a file over 500 lines"
for mark in TO'DO' FIX'ME' XX'X'; do
    add src/low/low.c "// $mark: later"
    sees mark 8 src/low/low.c "$mark"
done
add README.md "see /ho""me/someone/x"
sees private-path 1 README.md "a path of somebody's machine"

{
    printf 'void low_long(void)\n{\n'
    yes '    low_one();' | head -68
    printf '}\n'
} >>"$tree/src/low/low.c"
sees long-function 8 src/low/low.c "a function over 70 lines"
add src/low/low.c '// low_one(2);'
sees dead-code 8 src/low/low.c "commented-out code"
add src/low/low.c '#if 0' '#endif'
sees dead-code 8 src/low/low.c "#if 0"
sed -i 1d "$tree/src/low/low.c"
sees opening 1 src/low/low.c "a file without an opening"
sed -i 3d "$tree/src/low/low.h"
sees opening 1 src/low/low.h "a public header without an essay"
sed -i '/pragma/d' "$tree/src/low/low.h"
sees opening 1 src/low/low.h "a header that may be included twice"
for effect in 'n++' 'n = 2' 'file_size(p, &n, e)' 'file_size(p, &n, &e)'; do
    add tests/a.c '/* A. */' 'void f(int n)' '{' "    ASSERT($effect);" '}'
    sees assert-effect 4 tests/a.c "ASSERT($effect)"
done
add tests/a.c '/* A. */' 'void f(int n)' '{' '    ASSERT(n == 2 && n <= 3 && g(n) != 4);' '}'
works "an ASSERT without effects passes" "$tidy" "$tree"
plant
add src/low/low.h 'typedef struct x {' '    int y;' '} x;'
sees typedef-struct 14 src/low/low.h "a struct that loses its name"

add tests/a.c '/* A. strcpy(a, b) */' 'char *s = "strcpy(";' 'int n = x.strcpy(1) + my_strcpy(2);'
works "words in comments, literals, members and longer names are none" "$tidy" "$tree"
plant
add tests/a.c '/* A. tidy: banned, 2 */' 'char *p = strcpy(strcpy(a, b), c);'
works "an excuse for the exact number passes" "$tidy" "$tree"
add tests/a.c 'char *q = strcpy(a, b);'
"$tidy" "$tree" >"$scratch/out" 2>"$scratch/err"
says "one more than excused shows" "tests/a.c:3: banned"
plant
add tests/a.c '/* A. tidy: banned, 1 */'
sees unused-excuse 1 tests/a.c "an unused excuse"

printf 'build/libloco_low.a:low.c.o:0000 T %s\n' low_one lo_two lo high_x >"$scratch/nm"
"$tidy" "$tree" "$scratch/nm" >"$scratch/out" 2>"$scratch/err"
says "a symbol without its module's prefix" "high_x of module low lacks its prefix"
verdict $(($(grep -c ': symbol:' "$scratch/out") != 1)) "and no other symbol"
printf 'build/libloco_low.a:level_x.c.o:0000 %s\n' 'D low_table' 'T low_more' >"$scratch/nm"
"$tidy" "$tree" "$scratch/nm" >"$scratch/out" 2>"$scratch/err"
says "a level that exports more than its table" "level_x.c.o exports low_more besides its table"

rm "$tree/src/LAYERS"
refuses "a tree without LAYERS" 3 \
    "tidy: $tree/src/LAYERS: cannot open: No such file or directory" "$tidy" "$tree"
finish
