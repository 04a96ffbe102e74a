#!/bin/sh
# loco logprobs: rows in, log-probabilities out, the same bits however they are computed; and the
# bits that sampling recorded. usage: logprobs.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
model=$scratch/m
"$loco" init --out "$model" --hidden_size 64 --num_hidden_layers 2 --initializer_range 0.1 \
    --max_position_embeddings 256 >/dev/null

# Rows of many lengths.
awk 'BEGIN { for (r = 0; r < 40; r++) { printf "{\"ids\": [%d", r
     for (i = 0; i < r * 7 % 90; i++) printf ", %d", (r * 31 + i * i * 17) % 259
     print "]}" } }' >"$scratch/rows"
works "rows of a file" "$loco" logprobs --model "$model" "$scratch/rows"
says "a perplexity at the end" "logprobs: 40 rows, 1680 tokens, perplexity "
cp "$scratch/out" "$scratch/whole"
[ "$(wc -l <"$scratch/whole")" -eq 40 ]
verdict $? "a row for each"

# same WHAT COMMAND...: its output is the first one's.
same() {
    works "$@"
    cmp -s "$scratch/out" "$scratch/whole"
    verdict $? "gives the same bits"
}
same "stdin" sh -c "$loco logprobs --model $model <$scratch/rows"
same "rows that come one by one" \
    sh -c "while read -r row; do echo \"\$row\"; sleep 0.01; done <$scratch/rows | $loco logprobs \
--model $model"
same "small micro-batches" "$loco" logprobs --model "$model" "$scratch/rows" --microbatch_tokens 90
same "rows longer than a micro-batch" \
    "$loco" logprobs --model "$model" "$scratch/rows" --microbatch_tokens 4
same "one thread" "$loco" logprobs --model "$model" "$scratch/rows" --threads 1
same "three threads" "$loco" logprobs --model "$model" "$scratch/rows" --threads 3
same "the portable level" env LOCO_KERN=portable "$loco" logprobs --model "$model" "$scratch/rows"
sed -n 20p "$scratch/rows" >"$scratch/one"
works "a row alone" "$loco" logprobs --model "$model" "$scratch/one"
[ "$(cat "$scratch/out")" = "$(sed -n 20p "$scratch/whole")" ]
verdict $? "gives the same bits"

works "text" sh -c "echo '{\"text\": \"hi\"}' | $loco logprobs --model $model"
cp "$scratch/out" "$scratch/text"
works "its ids" sh -c "echo '{\"ids\": [104, 105]}' | $loco logprobs --model $model"
cmp -s "$scratch/out" "$scratch/text"
verdict $? "are the same"
works "rows without a token to score" \
    sh -c "printf '{\"ids\": []}\n{\"ids\": [5]}\n' | $loco logprobs --model $model --argmax"
[ "$(cat "$scratch/out")" = '{"ids": [], "logprobs": [], "argmax": [], "sum": 0}
{"ids": [5], "logprobs": [], "argmax": [], "sum": 0}' ]
verdict $? "have none"

# What sampling recorded, and what the most likely token is.
works "samples" "$loco" generate --model "$model" --prompt hello --max_completion_length 40 \
    --num_generations 4 --json
sed 's/.*"ids": \[\([^]]*\)\].*/{"ids": [104, 101, 108, 108, 111, \1]}/' "$scratch/out" \
    >"$scratch/rows"
sed 's/.*"logprobs": \[\([^]]*\)\].*/\1/' "$scratch/out" >"$scratch/drawn"
works "their log-probabilities" "$loco" logprobs --model "$model" "$scratch/rows"
sed 's/.*"logprobs": \[\([^]]*\)\].*/\1/; s/^\([^,]*, \)\{4\}//' "$scratch/out" >"$scratch/scored"
cmp -s "$scratch/drawn" "$scratch/scored"
verdict $? "are the floats that sampling recorded"
works "a greedy sample" "$loco" generate --model "$model" --prompt hello --temperature 0 \
    --max_completion_length 30 --json
sed 's/.*"ids": \[\([^]]*\)\].*/\1/' "$scratch/out" >"$scratch/drawn"
works "what is likely there" sh -c \
    "echo \"{\\\"ids\\\": [104, 101, 108, 108, 111, \$(cat $scratch/drawn)]}\" |
     $loco logprobs --model $model --argmax"
sed 's/.*"argmax": \[\([^]]*\)\].*/\1/; s/^\([^,]*, \)\{4\}//' "$scratch/out" >"$scratch/best"
cmp -s "$scratch/drawn" "$scratch/best"
verdict $? "is what it drew"

for family in llama_rope3 qwen2_bias qwen3_wide; do
    works "$family, which has no tokenizer" sh -c \
        "echo '{\"ids\": [1, 2, 3]}' | $loco logprobs --model tests/golden/models/$family"
done

# asks WHAT ROWS STATUS TEXT OPTION...: a refusal.
asks() {
    what=$1 want=$3 text=$4
    printf "$2" >"$scratch/in"
    shift 4
    refuses "$what" $want "$text" sh -c "$loco logprobs --model $model $* <$scratch/in"
}
asks "an id past the vocabulary" '{"ids": [1]}\n{"ids": [1, 259]}\n' 7 \
    "loco logprobs: error: standard input:2: ids[1]: expected an integer from 0 to 258 \
(vocab_size), got 259"
asks "an id below 0" '{"ids": [-1]}' 7 \
    "loco logprobs: error: standard input:1: ids[0]: expected an integer from 0 to 258 \
(vocab_size), got -1"
asks "a number that is no id" '{"ids": [1.5]}' 7 \
    "loco logprobs: error: standard input:1: ids[0]: expected an integer from 0 to 258 \
(vocab_size), got 1.5"
asks "a whole number with a fraction" '{"ids": [1.0]}' 7 \
    "loco logprobs: error: standard input:1: ids[0]: expected an integer from 0 to 258 \
(vocab_size), got 1.0"
asks "a row without ids and text" '{"id": [1]}' 7 \
    "loco logprobs: error: standard input:1: expected \"ids\", a list of token ids, or \"text\", \
a string"
asks "a row with ids and text" '{"ids": [1], "text": "a"}' 7 \
    "loco logprobs: error: standard input:1: has both \"ids\" and \"text\"; leave one"
asks "a line that is no object" '\n[1]' 4 \
    "loco logprobs: error: standard input:2: byte 1: not a JSON object: one object {...} a line"
echo '{"ids": [1]}' | "$loco" logprobs --model "$model" --memory_budget 1MiB 2>"$scratch/err"
says "a budget that is too small names the knob" "; lower microbatch_tokens"
asks "a row longer than the model's context" "$(awk 'BEGIN { printf "{\"text\": \""
    for (i = 0; i < 257; i++) printf "a"; print "\"}" }')" 7 \
    "loco logprobs: error: standard input:1: 257 tokens are more than the model's \
max_position_embeddings 256; cut the row"
model=tests/golden/models/llama_tied
asks "text without a tokenizer" '{"text": "a"}' 7 \
    "loco logprobs: error: standard input:1: text: $model has no tokenizer.json; give ids"
finish
