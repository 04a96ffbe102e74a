#!/bin/sh
# The whole of LoCo on one page: a task, a fresh model, a warm start, GRPO, an evaluation on prompts
# that were never trained on, and the curve. SEED picks all random numbers; REWARD=random is the
# control, a coin that must teach nothing. Results go to out/demo-REWARD-SEED.
set -eu
cd "$(dirname "$0")/.."
seed=${SEED:-1} reward=${REWARD:-exact} loco=build/loco
out=out/demo-$reward-$seed
begin=$(date +%s)

# number NAME < JSON: the value of one field.
number() {
    sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1
}
evaluate() { # MODEL FILE: samples and greedy answers to prompts that were never trained on
    $loco eval --model "$1" --data "$out/data/test.jsonl" --reward exact --num_generations 8 \
        --max_prompt_length 8 --max_completion_length 8 --seed "$seed" --json >"$2"
}
say() {
    printf '\n== %s\n' "$*"
}

rm -rf "$out"
mkdir -p "$out"
say "a task: sort six digits; its teacher sorts up, down or not at all, one third each"
$loco data sort-amb --out "$out/data" --seed "$seed" \
    --train_rows 20000 --test_rows 256 --sft_rows 60000
head -n 2 "$out/data/sft.jsonl"

say "a fresh model"
$loco init --arch llama --hidden_size 64 --num_hidden_layers 2 --num_attention_heads 4 \
    --intermediate_size 256 --tokenizer bytes --out "$out/model" --seed "$seed"

say "warm start from the teacher (loco sft)"
$loco sft --model "$out/model" --data "$out/data/sft.jsonl" --output_dir "$out/warm" \
    --seed "$seed" --max_steps 600 --prompts_per_step 128 --learning_rate 2e-3 \
    --lr_scheduler_type cosine --warmup_steps 30 --max_prompt_length 8 --max_completion_length 8 \
    --save_steps none --logging_steps 100
warm=$out/warm/checkpoint-600
evaluate "$warm" "$out/before.json"

say "GRPO: only ascending order is rewarded (loco train --reward $reward)"
$loco train --model "$warm" --data "$out/data/train.jsonl" --reward "$reward" \
    --output_dir "$out/run" --seed "$seed" --max_steps 150 --prompts_per_step 16 \
    --num_generations 16 --learning_rate 5e-4 \
    --max_prompt_length 8 --max_completion_length 8 --save_steps none --logging_steps 15
trained=$out/run/checkpoint-150
evaluate "$trained" "$out/after.json"
$loco inspect "$out/run"

printf 'demo: reward %.2f -> %.2f, accuracy %.2f -> %.2f, %d s\n' \
    "$(number accuracy <"$out/before.json")" "$(number accuracy <"$out/after.json")" \
    "$(number greedy_accuracy <"$out/before.json")" "$(number greedy_accuracy <"$out/after.json")" \
    $(($(date +%s) - begin))
