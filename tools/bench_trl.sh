#!/bin/bash
# TRL's GRPOTrainer beside `loco train`, by CPU seconds, both held to AVX2, 8 prompts x 8 samples.
#
#     LOCO_ORACLE=VENV tools/bench_trl.sh small [STEPS]           a 19 M model, 64 new tokens
#     LOCO_ORACLE=VENV tools/bench_trl.sh sums FOLDER [STEPS]     SmolLM2-135M, 40 new tokens
#
# VENV is a Python environment as tools/oracle/README.md describes it. STEPS (2) are TRL's, after
# one that warms up. `sums` runs all 25 steps of LoCo and takes TRL's mean for each of its own:
# samples shorten as the model learns, of which TRL, which pads, has little.
set -e -o pipefail
cd "$(dirname "$0")/.."
loco=$PWD/build/loco
what=${1:?small or sums}
: "${LOCO_ORACLE:?the Python environment of tools/oracle/README.md}"
export LOCO_KERN=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
export GOMP_SPINCOUNT=0 OMP_WAIT_POLICY=passive # spinning threads would count as work

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# CPU seconds of a command whose output goes to a log.
cpu_of() {
    local TIMEFORMAT='%U %S' status=0
    { time "$@" >"$dir/log" 2>&1; } 2>"$dir/spent" || status=$?
    if [ $status -ne 0 ]; then
        cat "$dir/log" >&2
        echo "bench_trl.sh: $1 ended with status $status" >&2
        return $status
    fi
    awk '{ print $1 + $2 }' "$dir/spent"
}

train() { # STEPS: loco's run of that many
    rm -rf "$dir/run"
    cpu_of "$loco" train --model "$model" --data "$dir/data/train.jsonl" --reward math \
        --math_last_number true --prompt_template "$template" --output_dir "$dir/run" \
        --max_steps "$1" \
        --prompts_per_step 8 --num_generations 8 --max_completion_length "$tokens" \
        --max_prompt_length 128 --learning_rate "$rate" --lr_scheduler_type constant --beta 0
}

trl() { # STEPS: mean CPU seconds of a step
    "$LOCO_ORACLE/bin/python" tools/oracle/trl_step.py "$model" "$dir/data/train.jsonl" \
        "$template" "$1" "$per_device" "$tokens" "$rate" "$dir/trl" 2>"$dir/trl.log" |
        tee /dev/stderr |
        awk '/^mean/ { print $2 }'
}

"$loco" data sums --out "$dir/data" >/dev/null
case $what in
small)
    model=$dir/model template='{prompt}' tokens=64 rate=1e-6 per_device=64 steps=${2:-2}
    "$loco" init --arch llama --hidden_size 384 --num_hidden_layers 8 --num_attention_heads 6 \
        --intermediate_size 1536 --tokenizer bytes --out "$model" >/dev/null
    theirs=$(trl $((steps + 1)))
    one=$(train 1) more=$(train $((steps + 1)))
    awk -v t="$theirs" -v one="$one" -v more="$more" -v n="$steps" 'BEGIN {
        ours = (more - one) / n
        printf "19 M step: TRL %.2f CPU s, LoCo %.2f, ratio %.2f (floor 1.6)\n",
            t, ours, t / ours }'
    ;;
sums)
    model=${2:?the SmolLM2 folder} tokens=40 rate=1e-5 per_device=16 steps=${3:-2}
    system='You are a helpful AI assistant named SmolLM, trained by Hugging Face'
    template="<|im_start|>system
$system<|im_end|>
<|im_start|>user
{prompt}<|im_end|>
<|im_start|>assistant
"
    theirs=$(trl $((steps + 1)))
    ours=$(train 25)
    awk -v t="$theirs" -v ours="$ours" 'BEGIN {
        printf "25 steps of sums: TRL %.0f CPU s (25 x %.1f), LoCo %.0f, ratio %.2f (floor 2.5)\n",
            25 * t, t, ours, 25 * t / ours }'
    ;;
*)
    echo "bench_trl.sh: expected small or sums, got '$what'" >&2
    exit 2
    ;;
esac
