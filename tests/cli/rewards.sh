#!/bin/sh
# loco score and loco eval: rewards of saved and of fresh completions.
# usage: rewards.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
model=$scratch/m

# gives WHAT ROWS OUTPUT OPTION...: of loco score.
gives() {
    what=$1 want=$3
    printf '%s\n' "$2" >"$scratch/in"
    shift 3
    "$loco" score "$@" <"$scratch/in" >"$scratch/out" 2>"$scratch/err"
    got=$(cat "$scratch/out")
    [ "$got" = "$want" ] || printf '    wanted %s\n    got    %s\n' "$want" "$got"
    [ "$got" = "$want" ]
    verdict $? "$what"
}

# asks WHAT ROWS STATUS TEXT OPTION...: a refusal.
asks() {
    what=$1 want=$3 text=$4
    printf "$2" >"$scratch/in"
    shift 4
    refuses "$what" $want "$text" sh -c "$loco score $* <$scratch/in"
}

other='"x": [1.0, 1e-06, null, true, "ä"]'
gives "rewards, other columns kept" \
    "{\"completion\": \"The answer is 1,200.\", \"answer\": 1200, $other}
{\"completion\": \"nothing\", \"answer\": \"so\\n#### 7\"}" \
    "{\"completion\": \"The answer is 1,200.\", \"answer\": 1200, $other, \"reward\": 1.0}
{\"completion\": \"nothing\", \"answer\": \"so\\n#### 7\", \"reward\": 0.0}" --reward math
says "their mean" "score: 2 rows, mean reward 0.5000"
each='"rewards": {"exact": 1.0, "math": 0.0, "format": 0.0}'
gives "several with weights" '{"completion": " 7 ", "answer": "7", "reward": 3}' \
    "{\"completion\": \" 7 \", \"answer\": \"7\", \"reward\": 2.0, $each}" \
    --reward exact,math,format --reward_weights 2,1,1
gives "columns by name" '{"c": "7", "completion": "8", "a": "7"}' \
    '{"c": "7", "completion": "8", "a": "7", "reward": 1.0}' \
    --reward exact --completion_field c --answer_field a
gives "the last number by option" '{"completion": "1 or 2", "answer": "2"}' \
    '{"completion": "1 or 2", "answer": "2", "reward": 1.0}' --reward math --math_last_number
works "many rows" sh -c "awk 'BEGIN { for (i = 0; i < 1000; i++)
    print \"{\\\"completion\\\": \\\"\" i \"\\\", \\\"answer\\\": 1}\" }' |
    $loco score --reward random >$scratch/coin"
sed 's/.*"completion": "\([0-9]*\)".*/\1/' "$scratch/coin" >"$scratch/order"
sort -nc "$scratch/order" && [ "$(wc -l <"$scratch/order")" -eq 1000 ]
verdict $? "keep their order"
heads=$(grep -c '"reward": 1.0' "$scratch/coin")
[ "$heads" -gt 400 ] && [ "$heads" -lt 600 ]
verdict $? "a coin is fair"

asks "a row without a completion" '{"completion": "a", "answer": "a"}\n{"answer": "a"}\n' 7 \
    "loco score: error: standard input:2: no field 'completion'" --reward exact
asks "a row without an answer" '{"completion": "a"}' 7 \
    "loco score: error: standard input:1: no field 'answer'" --reward exact
asks "a completion that is no text" '{"completion": 1, "answer": "a"}' 7 \
    "loco score: error: standard input:1: completion: expected a string" --reward exact
asks "an answer that is neither text nor number" '{"completion": "1", "answer": ["a"]}' 7 \
    "loco score: error: standard input:1: answer: expected a string or a number" --reward exact
asks "no answer by the rule" '{"completion": "1", "answer": "18"}' 7 \
    "loco score: error: standard input:1: no answer by gold_rule hashes in the answer field" \
    --reward exact --gold_rule hashes
asks "a line that is not JSON" '{"completion": "1", "answer": "1"}\n{"completion"\n' 4 \
    "loco score: error: standard input:2: byte 13: not JSON (':' expected near end of file): mend \
or remove the line" \
    --reward exact
asks "no row" '' 7 \
    "loco score: error: standard input: no row; expected one JSON object {...} a \
line" --reward exact
asks "an unknown reward" '' 2 \
    "loco score: error: reward: 'exat' is not known; expected exact, format, math or \
random" --reward exat
asks "a weight too few" '' 2 \
    "loco score: error: reward_weights: got 1 for 2 rewards; give one for each, in their order, \
or none for 1 each" \
    --reward exact,math --reward_weights 1

"$loco" init --out "$model" --hidden_size 32 --num_hidden_layers 1 >/dev/null
"$loco" data sums --out "$scratch/d" >/dev/null
evaluate="$loco eval --model $model --reward exact,random --max_completion_length 4 \
--num_generations 4"
works "an evaluation" $evaluate --data "$scratch/d/test.jsonl"
says "a table" "pass@4"
works "as JSON" $evaluate --data "$scratch/d/test.jsonl" --json
share='[0-9.]+'
rates="\"accuracy\": $share, \"greedy_accuracy\": $share, \"pass@1\": $share, \"pass@2\": $share"
rates="$rates, \"pass@4\": $share, \"maj@4\": $share, \"reward\": $share"
counts="\"prompts\": 16, \"samples\": 64, \"temperature\": 1.0"
grep -qE "$counts, $rates, \"mean_length\": $share, " "$scratch/out"
verdict $? "all is there"
cp "$scratch/out" "$scratch/first"
works "again, in other slots" $evaluate --data "$scratch/d/test.jsonl" --json --decode_slots 3
cmp -s "$scratch/out" "$scratch/first"
verdict $? "is the same"
works "the first rows alone" $evaluate --data "$scratch/d/test.jsonl" --json --rows_max 3
says "their number" '"prompts": 3, "samples": 12'

# evaluates WHAT ROWS STATUS TEXT: a refusal of a data file.
evaluates() {
    printf "$2" >"$scratch/rows"
    refuses "$1" $3 "$4" $evaluate --data "$scratch/rows"
}
evaluates "data that is not UTF-8" '{"prompt": "a", "answer": "1"}\n{"prompt": "\377"}' 4 \
    "loco eval: error: $scratch/rows: line 2: byte 13: not UTF-8: save the file as UTF-8"
evaluates "data that is not JSON" '{"prompt": "a", "answer": "1"}\n{"prompt"' 4 \
    "loco eval: error: $scratch/rows: line 2: byte 9: not JSON (':' expected near end of file): \
mend or remove the line"
evaluates "a field that no row has" '{"q": "a", "answer": "1"}' 7 \
    "loco eval: error: $scratch/rows: no row has a field 'prompt', 'question' or 'problem'; there \
are 'q' and 'answer': name the right one with prompt_field"
evaluates "an empty file" '' 7 \
    "loco eval: error: $scratch/rows: the file has no rows: give JSONL, one object {...} a line"
evaluates "no usable row" '{"prompt": "a", "answer": ""}\n{"prompt": "", "answer": "1"}\n' 7 \
    "loco eval: error: $scratch/rows: no usable row among 2: 1 empty answer (first on line 1), 1 \
empty prompt (first on line 2): mend the rows or the options"
{
    printf '{"prompt": "a", "answer": "1"}\n{"prompt": "'
    head -c 52428800 /dev/zero | tr '\0' a
    printf '", "answer": "2"}\n{"prompt": 1, "answer": "1"}\n'
} >"$scratch/rows"
works "a row of 50 MB" $evaluate --data "$scratch/rows"
says "is dropped and counted" "warning: $scratch/rows: 3 rows, 1 usable; dropped: 1 longer than \
16 MiB (first on line 2), "
refuses "data that is not there" 3 \
    "loco eval: error: nowhere: cannot open: No such file or directory" $evaluate --data nowhere
finish
