#!/bin/sh
# loco generate: samples that depend on the seed alone, in order, streamed or as JSON.
# usage: generate.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
model=$scratch/m
"$loco" init --out "$model" --hidden_size 64 --num_hidden_layers 2 --initializer_range 0.1 \
    --max_position_embeddings 256 >/dev/null
"$loco" data sums --out "$scratch/d" >/dev/null
prompts=$scratch/d/test.jsonl
short="--max_completion_length 12"

works "one prompt" "$loco" generate --model "$model" --prompt hello $short
says "a summary" "generate: 1 samples, "
works "a set of prompts" "$loco" generate --model "$model" --prompts "$prompts" --json \
    --num_generations 3 $short
cp "$scratch/out" "$scratch/whole"
[ "$(wc -l <"$scratch/whole")" -eq 48 ]
verdict $? "every prompt has its samples"
sed 's/.*"index": \([0-9]*\), "sample": \([0-9]*\).*/\1 \2/' "$scratch/whole" >"$scratch/order"
awk 'BEGIN { for (i = 0; i < 16; i++) for (s = 0; s < 3; s++) print i, s }' |
    cmp -s - "$scratch/order"
verdict $? "in order"
line='"index": 0, "sample": 0, "text": ".*", "ids": \[[0-9, ]+\], "logprobs": \[[-0-9., e]+\]'
grep -qE "^\{\"prompt\": \"[^\"]*\", $line, \"stop_reason\": \"(stop|length)\"\}$" "$scratch/whole"
verdict $? "each as documented"

# same WHAT COMMAND...: its output is the first one's.
same() {
    works "$@"
    cmp -s "$scratch/out" "$scratch/whole"
    verdict $? "gives the same samples"
}
again="$loco generate --model $model --prompts $prompts --json --num_generations 3 $short"
same "one slot" $again --decode_slots 1
same "seven slots" $again --decode_slots 7
same "two devices" $again --devices 2 --threads 2
same "a small cache" $again --kv_memory 1MiB
same "the portable level" env LOCO_KERN=portable $again
works "another seed" $again --seed 1
! cmp -s "$scratch/out" "$scratch/whole"
verdict $? "gives other samples"

works "streamed text" "$loco" generate --model "$model" --prompt "a b" $short
cp "$scratch/out" "$scratch/streamed"
works "the same as JSON" "$loco" generate --model "$model" --prompt "a b" --json $short
sed 's/.*"ids": \[\([^]]*\)\].*/\1/; s/, 258$//' "$scratch/out" |
    "$loco" tokenize --model "$model" --decode --skip_special_tokens >"$scratch/raw"
iconv -c -f utf-8 -t ascii "$scratch/raw" | tr -cd 'a-zA-Z0-9' >"$scratch/want"
iconv -c -f utf-8 -t ascii "$scratch/streamed" | tr -cd 'a-zA-Z0-9' >"$scratch/got"
cmp -s "$scratch/want" "$scratch/got"
verdict $? "is the same text"
works "greedy" "$loco" generate --model "$model" --prompt x --temperature 0 --num_generations 2 \
    --json $short
[ "$(sed 's/"sample": [01]/"sample": /' "$scratch/out" | uniq | wc -l)" -eq 1 ]
verdict $? "samples are all the same"
works "a template" "$loco" generate --model "$model" --prompt x --json $short \
    --prompt_template "<|im_start|>user {prompt}<|im_end|>"
says "the prompt is shown as given" '{"prompt": "x", '
works "several samples as text" "$loco" generate --model "$model" --prompt x --num_generations 2 \
    --max_completion_length 3
says "each under its name" "== prompt 0, sample 1: "

printf '{"prompt": "a"}\n{"prompt": ""}\n{"question": 7}\n{"prompt": "%s"}\n{"prompt": "b"}\n' \
    "$(awk 'BEGIN { for (i = 0; i < 300; i++) printf "a" }')" >"$scratch/rows"
works "rows that cannot be used" "$loco" generate --model "$model" --prompts "$scratch/rows" \
    --json $short
says "are counted" "warning: $scratch/rows: 5 rows, 2 usable; dropped: "
[ "$(sed 's/.*"index": \([0-9]*\).*/\1/' "$scratch/out" | tr '\n' ' ')" = "0 4 " ]
verdict $? "and the others keep their numbers"

refuses "no prompt" 2 \
    "loco generate: error: give one of --prompt and --prompts" \
    "$loco" generate --model "$model"
refuses "a sample past the model's context" 2 \
    "loco generate: error: prompt: 5 tokens and max_completion_length 252 are more than the \
model's max_position_embeddings 256; lower max_completion_length" \
    "$loco" generate --model "$model" --prompt hello --max_completion_length 252
"$loco" generate --model "$model" --prompt x $short --memory_budget 1MiB \
    >"$scratch/out" 2>"$scratch/err"
[ $? -eq 6 ]
verdict $? "a budget that is too small"
says "names the knobs that there are" "; lower decode_slots, max_completion_length or devices"
works "nothing is planned for training" "$loco" generate --model "$model" --prompt x $short \
    --memory_budget 2MiB
refuses "a kernel level that is none" 2 \
    "loco generate: error: LOCO_KERN=frob: no such kernel level; this CPU runs: $("$loco" check |
        awk '$2 == "gemm" { printf "%s%s", comma, $1; comma = ", " }') (unset it to take the \
best)" \
    env LOCO_KERN=frob "$loco" generate --model "$model" --prompt x
finish
