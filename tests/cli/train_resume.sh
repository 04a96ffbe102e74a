#!/bin/sh
# no-silent-loss: what a run goes on from, what it refuses, with the exact message; checkpoints as
# models; what a dry run sees. usage: train_resume.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/runs.sh
"$loco" init --out other --hidden_size 64 --num_hidden_layers 1 --num_attention_heads 2 >/dev/null

small="--model m --data d/train.jsonl --prompts_per_step 4 --max_steps 4 --save_steps 1
    --learning_rate 1e-2 --max_prompt_length 16 --max_completion_length 5 --microbatch_tokens 64
    --threads 1"
train="$loco train $small --num_generations 4 --reward exact,random"

# ---- resuming ----
works "a run" $train --output_dir run
# unlike WHAT TEXT OPTIONS...: the run is not resumed with these options, and stays as it is.
unlike() {
    what=$1 text=$2
    shift 2
    rm -rf copy
    cp -r run copy
    refuses "$what" 8 "loco train: error: $text" again copy "$@"
    diff -r -x .lock run copy >/dev/null
    verdict $? "$what: the run stays as it was"
}
refuses "a folder that holds a run" 8 \
    "loco train: error: output_dir: run holds a run already; give another folder, or \
resume_from_checkpoint=auto to go on with it" $train --output_dir run
differs="copy/checkpoint-4: resuming needs the options the run began with:"
remedy="Give these, or start a new run in another output_dir"
unlike "another seed" "$differs seed was 42, is 1. $remedy" --seed 1
unlike "another model" "$differs model was \"m\", is \"other\". $remedy" --model other
unlike "other data" "$differs data was \"d/train.jsonl\", is \"d/test.jsonl\". $remedy" \
    --data d/test.jsonl
unlike "several other options" \
    "$differs max_completion_length was 5, is 6; loss_type was dapo, is grpo; beta was 0, \
is 0.1; and 1 more. $remedy" \
    --loss_type grpo --learning_rate 2e-2 --max_completion_length 6 --beta 0.1
unlike "another length where the learning rate depends on it" \
    "$differs max_steps was 4, is 8. $remedy" --max_steps 8
cp d/train.jsonl kept
sed -i 2d d/train.jsonl
unlike "a data file that has changed" \
    "copy/checkpoint-4: data: d/train.jsonl is not the file that the checkpoint was made with; \
give that file or start anew"
mv kept d/train.jsonl
changed="copy/checkpoint-4: model: m is not what the run began with: its weights, config.json or \
tokenizer.json changed; give that folder or start anew"
cp -r m kept
"$loco" init --out m2 --hidden_size 32 --num_hidden_layers 2 --num_attention_heads 2 --seed 7 \
    >/dev/null
cp m2/model.safetensors m
unlike "a model whose weights have changed" "$changed"
cp kept/model.safetensors m
sed -i 's/"rope_theta": [0-9.]*/"rope_theta": 5000/' m/config.json
unlike "a model whose configuration has changed" "$changed"
rm -rf m && mv kept m
rm -rf copy
cp -r run copy
printf x | dd of=copy/checkpoint-4/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
crc=$(sed -n 's/.*"model.safetensors", .*"crc32": "\(.*\)".*/\1/p' copy/checkpoint-4/COMPLETE)
damaged=", so the checkpoint is not whole; go on with resume_from_checkpoint=copy/checkpoint-3, \
or remove copy/checkpoint-4"
# again_but TEXT: copy is refused with status 8 and this text, in which X is a checksum.
again_but() {
    again copy >out 2>err
    [ $? -eq 8 ] && sed 's/checksum [0-9a-f]\{8\},/checksum X,/' err |
        grep -qxF "loco train: error: $1"
}
again_but "copy/checkpoint-4/model.safetensors: has checksum X, COMPLETE says $crc$damaged"
verdict $? "a wrong checksum"
rm copy/checkpoint-4/model.safetensors
refuses "a file that is not there" 8 "loco train: error: copy/checkpoint-4/model.safetensors: \
cannot open: No such file or directory$damaged" again copy
works "from the checkpoint before" $train --output_dir copy \
    --resume_from_checkpoint copy/checkpoint-3
same_run run copy
verdict $? "all is made again"
size=$(wc -c <copy/checkpoint-4/optimizer-00001-of-00001.safetensors)
truncate -s 9000 copy/checkpoint-4/optimizer-00001-of-00001.safetensors
refuses "an optimizer file cut short" 8 "loco train: error: \
copy/checkpoint-4/optimizer-00001-of-00001.safetensors: has 9000 bytes, COMPLETE says $size\
$damaged" again copy
cp copy/checkpoint-4/COMPLETE kept
# flipped WHAT SCRIPT TEXT: a byte of COMPLETE changed by sed's script is a damaged checkpoint.
flipped() {
    sed "$2" kept >copy/checkpoint-4/COMPLETE
    refuses "$1" 8 "loco train: error: copy/checkpoint-4/$3$damaged" again copy
}
cp run/checkpoint-4/* copy/checkpoint-4
id=$(sed -n 's/.*"run_id": "\(.*\)".*/\1/p' kept)
flipped "a COMPLETE that is not JSON" 's/"files"/"files!/' \
    "COMPLETE:4: expected a JSON object as LoCo writes it"
flipped "a COMPLETE of another version" 's/"format": 1/"format": 9/' \
    "COMPLETE: expected \"format\": 1; another version of LoCo wrote it"
flipped "a COMPLETE of nothing" 's/"files"/"filed"/' "COMPLETE: lists no files"
flipped "a COMPLETE with a name changed" 's/"config.json"/"config.jsoo"/' \
    "config.jsoo: cannot open: No such file or directory"
flipped "a COMPLETE with an entry broken" 's/"name": "config.json"/"nane": "config.json"/' \
    "COMPLETE: an entry has no plain name or no crc32"
flipped "a COMPLETE of another run" "s/\"$id\"/\"x${id#?}\"/" \
    "COMPLETE: has run_id x${id#?}, trainer_state.json $id"
mv copy/checkpoint-3 apart
sed 's/"files"/"filed"/' kept >copy/checkpoint-4/COMPLETE
refuses "when it is the only one" 8 "loco train: error: copy/checkpoint-4/COMPLETE: lists no \
files, so the checkpoint is not whole, and none before it is; put it back as it was, or start anew \
in another output_dir" again copy
mv apart copy/checkpoint-3
rm copy/checkpoint-4/COMPLETE
mkdir copy/checkpoint-4.aside
touch copy/checkpoint-4.aside/kept
refuses "a checkpoint without COMPLETE" 8 \
    "loco train: error: copy/checkpoint-4/COMPLETE: cannot open: No such file or \
directory$damaged" \
    $train --output_dir copy --resume_from_checkpoint copy/checkpoint-4
works "is passed over" again copy
says "which is said" \
    "warning: copy/checkpoint-4 has no COMPLETE, so it is not whole: passed over"
says "and kept" "warning: copy/checkpoint-4 is not a whole checkpoint of this run; it is \
copy/checkpoint-4.aside-2 now"
[ -e copy/checkpoint-4.aside/kept ] && [ -e copy/checkpoint-4.aside-2/model.safetensors ]
verdict $? "beside what was kept before"
rm -r copy/checkpoint-4.aside copy/checkpoint-4.aside-2
same_run run copy
verdict $? "while its step is made again"
refuses "a checkpoint that is not there" 8 \
    "loco train: error: resume_from_checkpoint: nowhere is not a folder" \
    $train --output_dir run --resume_from_checkpoint nowhere
refuses "a checkpoint of the run in another folder" 8 \
    "loco train: error: output_dir: new does not hold the run of run/checkpoint-4; give that run's \
folder, where its metrics and samples go on" \
    $train --output_dir new --resume_from_checkpoint run/checkpoint-4
rm -rf copy
cp -r run copy
rm -r copy/checkpoint-*
refuses "a run that lost its checkpoints" 8 "loco train: error: copy/metrics.jsonl: has 4 steps, \
of which one in 1 was saved, but there is no whole checkpoint; put one back, or start anew in \
another output_dir" again copy
diff copy/metrics.jsonl run/metrics.jsonl && diff -r copy/samples run/samples
verdict $? "and keeps what it has"
rm -r copy/samples copy/env.json
refuses "metrics that are not a run's" 8 "loco train: error: copy/metrics.jsonl: is not of a LoCo \
run, since that run's env.json is not beside it; give another output_dir, or move it away" \
    again copy
rm -r copy
mkdir -p copy/samples
touch copy/metrics.jsonl copy/samples/step-1.jsonl
refuses "samples that are not a run's" 8 "loco train: error: copy/samples: is not of a LoCo run, \
since that run's env.json is not beside it; give another output_dir, or move it away" again copy
[ -e copy/samples/step-1.jsonl ]
verdict $? "and keeps them"
rm -r copy
LOCO_FAULT=step:3 $train --save_steps 3 --output_dir copy >/dev/null 2>&1
works "a run without a checkpoint yet" again copy
says "that begins anew says so" \
    "warning: copy/metrics.jsonl: has 2 steps and no checkpoint, so they are made again"
works "another run" $train --output_dir young --seed 3 --save_steps none --max_steps 1
rm -r young/checkpoint-1
refuses "going on with another seed before the first checkpoint" 8 \
    "loco train: error: resuming needs the options the run began with: seed was 3, is 42; \
max_steps was 1, is 4. $remedy" again young
rm -rf copy
cp -r run copy
state=copy/checkpoint-4/trainer_state.json
sed -i 's/"metrics_crc32"/"metrics_crc16"/' $state
crc=$(gzip -c $state | tail -c 8 | od -An -N4 -tx4 --endian=little | tr -d ' ')
sed -i "/trainer_state.json/s/\"crc32\": \"[0-9a-f]*\"/\"crc32\": \"$crc\"/" \
    copy/checkpoint-4/COMPLETE
refuses "a state of another version" 8 "loco train: error: copy/checkpoint-4: trainer_state.json: \
expected a text metrics_crc32; put it back as it was, or go on with \
resume_from_checkpoint=copy/checkpoint-3" again copy

rm -rf copy
cp -r run copy
mv copy/checkpoint-3 copy/checkpoint-7
renamed="loco train: error: copy/checkpoint-7: trainer_state.json says global_step 3, so its name \
should be checkpoint-3; put it back as it was, or go on with \
resume_from_checkpoint=copy/checkpoint-4"
refuses "a checkpoint by another step's name" 8 "$renamed" again copy
refuses "also when it is named" 8 "$renamed" $train --output_dir copy \
    --resume_from_checkpoint copy/checkpoint-7
mv copy/checkpoint-7 elsewhere
works "a name that is no step's will do" $train --output_dir copy --resume_from_checkpoint elsewhere

# ---- a checkpoint as a model ----
# flip FILE: a bit of it changes, in a copy of a checkpoint.
flip() {
    rm -rf copy
    cp -r run/checkpoint-4 copy
    at=$(($(wc -c <"copy/$1") / 2))
    byte=$(od -An -tu1 -j $at -N 1 "copy/$1")
    printf "\\$(printf %o $((byte ^ 1)))" |
        dd of="copy/$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}
# not_read FILE COMMAND...: which refuses the checkpoint for that file.
not_read() {
    crc=$(sed -n 's/.*"'"$1"'", .*"crc32": "\(.*\)".*/\1/p' copy/COMPLETE)
    have=$(gzip -c "copy/$1" | tail -c 8 | od -An -N4 -tx4 --endian=little | tr -d ' ')
    refuses "loco $2 with a bit of $1 flipped" 8 "loco $2: error: copy/$1: has checksum $have, \
COMPLETE says $crc, so the checkpoint is not whole; give another model" "$loco" "$2" $3
}
for file in model.safetensors config.json tokenizer.json; do
    flip $file
    not_read $file generate "--model copy --prompt x --max_completion_length 4"
    not_read $file eval "--model copy --data d/test.jsonl --reward random"
    not_read $file logprobs "--model copy --rows d/test.jsonl"
    not_read $file train "--model copy --data d/train.jsonl --reward random --output_dir new"
    not_read $file sft "--model copy --data d/sft.jsonl --output_dir new"
done
rm copy/COMPLETE
cp run/checkpoint-4/tokenizer.json copy
works "without COMPLETE it is a plain model" "$loco" generate --model copy --prompt x \
    --max_completion_length 4
flip optimizer-00001-of-00001.safetensors
rm copy/trainer_state.json
works "which needs nothing of a run" "$loco" generate --model copy --prompt x \
    --max_completion_length 4

# ---- what a checkpoint counts on beside it ----
# changed FILE SCRIPT: the folder copy, a run with sed's script applied to a file.
changed() {
    rm -rf copy
    cp -r run copy
    sed -i "$2" "copy/$1"
}
anew="; put it back as it was, or start anew in another output_dir"
before="; put it back as it was, or go on with resume_from_checkpoint=copy/checkpoint-3"
bytes=$(wc -c <run/metrics.jsonl)
crc=$(sed -n 's/.*"metrics_crc32": "\(.*\)".*/\1/p' run/checkpoint-4/trainer_state.json)
changed metrics.jsonl d
refuses "metrics that were lost" 8 "loco train: error: copy/metrics.jsonl: has 0 bytes, the \
checkpoint was made after $bytes$anew" again copy
rm copy/metrics.jsonl
refuses "metrics that are not there" 8 "loco train: error: copy/metrics.jsonl: cannot open: No \
such file or directory$anew" again copy
changed metrics.jsonl '2s/"step": 2/"step": 3/'
first="copy/metrics.jsonl: its first $bytes bytes have checksum X, the checkpoint says $crc"
again_but "$first$anew"
verdict $? "a byte of the metrics changed"
changed metrics.jsonl '4s/"step": 4/"step": 5/'
again_but "$first$before"
verdict $? "a byte changed after the checkpoint before"
works "which goes on" $train --output_dir copy --resume_from_checkpoint copy/checkpoint-3
same_run run copy
verdict $? "to the same bytes"
crc=$(printf %08x "$(sed -n '4s/.*"samples_crc32": \([0-9]*\).*/\1/p' run/metrics.jsonl)")
changed samples/step-4.jsonl '2s/"sample": 1/"sample": 2/'
again_but "copy/samples/step-4.jsonl: has checksum X, metrics.jsonl says $crc$before"
verdict $? "a byte of the samples changed"
changed samples/step-2.jsonl ''
rm copy/samples/step-2.jsonl
gone="copy/samples/step-2.jsonl: not found (where samples were removed on purpose, make the file \
copy/samples/REMOVED)"
refuses "samples that are not there" 8 "loco train: error: $gone$anew" again copy
rm -r copy/samples
refuses "no samples at all" 8 \
    "loco train: error: $(echo "$gone" | sed 's/step-2/step-1/')$anew" again copy
mkdir copy/samples
touch copy/samples/REMOVED
works "which is meant" again copy
changed samples/step-2.jsonl 's/^/ /'
touch copy/samples/REMOVED
again copy >out 2>err
verdict $(($? != 8)) "but a change is never meant"

# ---- two processes ----
$train --output_dir busy --max_steps 100000 --save_steps none >/dev/null 2>&1 &
background=$!
for _ in $(seq 600); do
    [ -s busy/samples/step-1.jsonl ] && break
    sleep 0.1
done
busy="loco train: error: busy/.lock: in use by process $background; wait for it to end or stop it"
refuses "two processes on one folder" 8 "$busy" $train --output_dir busy
refuses "also when it goes on" 8 "$busy" again busy
kill -KILL $background
wait $background 2>/dev/null
background=

# ---- without starting ----
refuses "a dry run from nowhere" 8 \
    "loco train: error: resume_from_checkpoint: nowhere is not a folder" \
    $train --output_dir new --resume_from_checkpoint nowhere --dry_run
refuses "a dry run where there is a file" 2 \
    "loco train: error: output_dir: d/test.jsonl is not a folder; give another name" \
    $train --output_dir d/test.jsonl --dry_run
refuses "a dry run where there is a run" 8 \
    "loco train: error: output_dir: run holds a run already; give another folder, or \
resume_from_checkpoint=auto to go on with it" $train --output_dir run --dry_run
refuses "a dry run of another run" 8 \
    "loco train: error: run/checkpoint-4: resuming needs the options the run began with: seed was \
42, is 1. $remedy" again run --seed 1 --dry_run
rm -rf copy
cp -r run copy
works "a dry run that goes on" again copy --dry_run
says "from where" "resume     copy/checkpoint-4"
diff -r run copy
verdict $? "changes nothing"
works "a dry run that begins anew" again new --dry_run
[ ! -e new ]
verdict $? "makes nothing"
finish
