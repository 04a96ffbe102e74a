#!/bin/sh
# Help, and what a wrong command line gets. usage: usage.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh

works "loco --help" "$loco" --help
says "it lists the commands" "logprobs   log-probabilities of given tokens or text"
says "it lists the exit statuses" "  130  stopped by a signal after saving"
works "loco alone is help" "$loco"
works "loco --version" "$loco" --version
says "it is a version" "loco 0."
for command in train sft generate eval score logprobs tokenize init data inspect check bench; do
    works "loco help $command" "$loco" help $command
    cp "$scratch/out" "$scratch/help"
    works "loco $command --help" "$loco" $command --help
    cmp -s "$scratch/out" "$scratch/help"
    verdict $? "both are the same"
done

! "$loco" data --help | grep -q "Fresh model"
verdict $? "loco data has nothing of a fresh model"
refuses "an empty prompt" 2 \
    "loco generate: error: command line: prompt: expected a text, or none, got nothing" \
    "$loco" generate --model m --prompt ""
refuses "an unknown command" 2 \
    "loco: error: no command 'trian'; did you mean 'train'? loco --help lists all" \
    "$loco" trian
refuses "help on an unknown command" 2 \
    "loco: error: no command 'evil'; did you mean 'eval'? loco --help lists all" \
    "$loco" help evil
refuses "help on two commands" 2 "loco: error: unexpected argument 'sft' behind train" \
    "$loco" help train sft
refuses "a word behind --version" 2 "loco: error: unexpected argument 'x' behind --version" \
    "$loco" --version x
refuses "a second file of rows" 2 \
    "loco score: error: command line: unexpected argument 'b.jsonl'; rows is given already, and \
is one" "$loco" score --reward exact a.jsonl b.jsonl
refuses "a second thing to inspect" 2 \
    "loco inspect: error: command line: unexpected argument 'd'; path is given already, and is \
one" "$loco" inspect m d
refuses "a path by name and a second one" 2 \
    "loco inspect: error: command line: unexpected argument 'd'; path is given already, and is \
one" "$loco" inspect --path m d
refuses "an unknown option" 2 \
    "loco eval: error: command line: no option 'moedl'; did you mean 'model'?" \
    "$loco" eval --moedl x
refuses "an option of another command" 2 \
    "loco eval: error: command line: 'beta' is an option of loco train, not of this command" \
    "$loco" eval beta=1
refuses "a required option left out" 2 \
    "loco init: error: --out is missing: folder to write" "$loco" init
refuses "a value of the wrong kind" 2 \
    "loco init: error: command line: seed: expected an integer from 0 to 18446744073709551615, \
got '1e3'" \
    "$loco" init --out "$scratch/m" --seed 1e3
refuses "a terminal's control characters in a value" 2 \
    "loco init: error: command line: seed: expected an integer from 0 to 18446744073709551615, \
got '\\x1b[2J'" \
    "$loco" init --out "$scratch/m" --seed "$(printf '\033[2J')"
refuses "a fault that is none" 2 \
    "loco check: error: LOCO_FAULT: fault 'x': expected POINT:N, enospc:POINT:N or int:POINT:N \
with N at least 1, as in save:3" \
    env LOCO_FAULT=x "$loco" check
works "configurations in YAML" sh -c "printf 'task: sums\nout: $scratch/d\n' >$scratch/c.yaml &&
    $loco data --config $scratch/c.yaml"
[ -s "$scratch/d/train.jsonl" ]
verdict $? "its options are in force"
works "a byte order mark before YAML, and no other file" sh -c \
    "printf '\357\273\277task: sums\nout: $scratch/d2\n' >$scratch/c.yaml &&
    $loco data --config $scratch/c.yaml --config none"
[ -s "$scratch/d2/train.jsonl" ]
verdict $? "its first option is in force"
refuses "a full disk behind stdout" 3 \
    "loco inspect: error: standard output: cannot write: No space left on device" \
    sh -c "$loco inspect $scratch/d/train.jsonl >/dev/full"
sh -c "$loco --help; echo \$? >$scratch/status" | true
verdict $? "a reader that leaves early"
[ "$(cat "$scratch/status")" -ne 1 ]
verdict $? "is no failure of loco's"
finish
