#!/bin/sh
# The README's commands of build/loco run as they stand there, on folders of those names that hold
# something small; only the 512 tokens of an answer are made 4. docs/FORMATS.md names every field
# that is written. usage: readme.sh PATH-OF-LOCO, from the repository root
loco=$1
root=$PWD
. tests/runs.sh

mkdir build gsm8k
ln -s "$loco" build/loco
"$loco" init --out Qwen3-0.6B --hidden_size 16 --num_hidden_layers 1 --num_attention_heads 1 \
    >/dev/null
head -n 1 d/test.jsonl >test.jsonl
# A hundred steps: three epochs of 266 rows, eight a step.
i=0
while [ $i -lt 266 ]; do
    echo "{\"question\": \"What is $i + 1?\", \"answer\": \"So #### $((i + 1))\"}"
    i=$((i + 1))
done >gsm8k/train.jsonl

# Commands in blocks of sh, each on a line of its own or with lines that end in \ or inside quotes.
sed -n '/^```sh$/,/^```$/p' "$root/README.md" | grep -v '^```\|^make ' |
    sed 's/max_completion_length 512/max_completion_length 4/' >commands
[ "$(grep -c '^build/loco ' commands)" -ge 5 ]
verdict $? "the README has commands"
works "they run" sh -eux commands
for said in "done: run/checkpoint-100" "resume     run/checkpoint-100, step 100" "accuracy " \
    "checkpoint-100  yes"; do
    says "and say" "$said"
done

# Names in backquotes of docs/FORMATS.md against the names in the files.
names() {
    grep -oh '"[a-z_0-9]*":' "$@" | tr -d '":' | sort -u
}
for name in $(names run/checkpoint-100/trainer_state.json run/checkpoint-100/COMPLETE run/env.json
    head -n 1 run/samples/step-1.jsonl | grep -oh '"[a-z_]*":' | tr -d '":'); do
    case $name in
    math) continue ;; # a reward's name
    esac
    grep -q "\`$name\`" "$root/docs/FORMATS.md"
    verdict $? "docs/FORMATS.md has $name"
done
finish
