#!/bin/sh
# loco check: all levels of this CPU are right. usage: check.sh PATH-OF-LOCO, from the root
loco=$1
. tests/shell.sh

works "every level of this CPU" "$loco" check
says "the oracle is among them" "portable  gemm"
says "nothing failed" " 0 failed,"
finish
