#!/bin/sh
# loco sft and loco train: runs, how they stop and go on, and what they refuse.
# usage: train.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
cd "$scratch" || exit 1
loco=$(cd "$OLDPWD" && realpath "$loco")
"$loco" init --out m --hidden_size 32 --num_hidden_layers 1 --num_attention_heads 2 >init
"$loco" init --out wide --hidden_size 64 --num_hidden_layers 1 --num_attention_heads 2 >init
"$loco" data sums --out d >init
train="$loco train --model m --data d/train.jsonl --reward math,random --math_last_number
    --max_prompt_length 16 --max_completion_length 4 --num_generations 4 --prompts_per_step 4
    --max_steps 6 --learning_rate 1e-3"

# waits_for FILE: until it is there, at most a minute.
waits_for() {
    for _ in $(seq 600); do
        [ -e "$1" ] && return 0
        sleep 0.1
    done
    return 1
}

works "a supervised run" "$loco" sft --model m --data d/sft.jsonl --output_dir warm --max_steps 2 \
    --max_prompt_length 16 --max_completion_length 4
says "its end" "done: warm/checkpoint-2"
works "a dry run" $train --output_dir whole --dry_run
says "shows the memory" "memory     "
[ ! -e whole ]
verdict $? "and starts nothing"
works "a run" $train --output_dir whole --save_steps 2
says "a line a step" "step 6/6  reward "
[ "$(wc -l <whole/metrics.jsonl)" -eq 6 ]
verdict $? "metrics of every step"
[ "$(ls whole | tr '\n' ' ')" = "checkpoint-4 checkpoint-6 config.yaml env.json metrics.jsonl \
perf.jsonl samples " ]
verdict $? "two checkpoints are kept"
works "the folder is inspected" "$loco" inspect whole
says "its checkpoints" "  checkpoint-6  yes"
says "its curve" "┤"
works "a checkpoint is inspected" "$loco" inspect whole/checkpoint-6
says "it is whole" "files, sizes and checksums as written"
works "it samples" "$loco" generate --model whole/checkpoint-6 --prompt x --max_completion_length 4

# same FOLDER: its results are those of the whole run.
same() {
    cmp -s "$1/metrics.jsonl" whole/metrics.jsonl &&
        cmp -s "$1/checkpoint-6/model.safetensors" whole/checkpoint-6/model.safetensors &&
        diff -rq "$1/samples" whole/samples >/dev/null
    verdict $? "the same metrics, weights and samples"
}
works "two devices (device-invariance)" $train --output_dir two --devices 2 --threads 2
same two
works "small micro-batches (micro-batch-invariance)" $train --output_dir small \
    --microbatch_tokens 20
same small
works "the portable level (level-invariance)" env LOCO_KERN=portable $train --output_dir portable
same portable

# Stopping and going on (restart-exactness).
$train --output_dir stopped --max_steps 100000 --save_steps none >out 2>err &
run=$!
waits_for stopped/samples/step-2.jsonl
kill -INT $run
wait $run
[ $? -eq 130 ]
verdict $? "Ctrl-C ends a run with status 130"
says "it says what it does" "stopping after this step; once more to leave at once"
ls stopped/checkpoint-*/COMPLETE >/dev/null 2>&1
verdict $? "it has saved"
$train --output_dir closed --max_steps 100000 --save_steps none 2>err | head -n 1 >out
ls closed/checkpoint-*/COMPLETE >/dev/null 2>&1
verdict $? "a reader that leaves ends a run, saved"
for fault in step:3 logged:4 save:2 save-weights:1 save-complete:2 save-renamed:2; do
    rm -rf cut
    env LOCO_FAULT=$fault $train --output_dir cut --save_steps 2 >out 2>err
    [ $? -ge 128 ]
    verdict $? "killed at $fault"
    works "it goes on" $train --output_dir cut --save_steps 2 --resume_from_checkpoint auto
    same cut
done

# Refusals.
refuses "a folder that holds a run" 8 \
    "loco train: error: output_dir: whole holds a run already; give another folder, or \
resume_from_checkpoint=auto to go on with it" \
    $train --output_dir whole
differs="loco train: error: whole/checkpoint-6: resuming needs the options the run began with:"
remedy="Give these, or start a new run in another output_dir"
again="$train --output_dir whole --resume_from_checkpoint auto"
refuses "another seed" 8 "$differs seed was 42, is 1. $remedy" $again --seed 1
refuses "another model" 8 "$differs model was \"m\", is \"wide\". $remedy" $again --model wide
refuses "other data" 8 "$differs data was \"d/train.jsonl\", is \"d/test.jsonl\". $remedy" \
    $again --data d/test.jsonl
cp d/train.jsonl kept.jsonl
tail -n +2 kept.jsonl >d/train.jsonl
refuses "a data file that has changed" 8 \
    "loco train: error: whole/checkpoint-6: data: d/train.jsonl is not the file that the \
checkpoint was made with; give that file or start anew" \
    $again
mv kept.jsonl d/train.jsonl
cp -r whole broken
printf x | dd of=broken/checkpoint-6/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
$train --output_dir broken --resume_from_checkpoint auto >out 2>err
[ $? -eq 8 ]
verdict $? "a wrong checksum"
crc='[0-9a-f]{8}'
grep -qE "^loco train: error: broken/checkpoint-6/model.safetensors: has checksum $crc, COMPLETE \
says $crc; resume from an earlier checkpoint$" err
verdict $? "is said"
rm broken/checkpoint-6/COMPLETE
refuses "a checkpoint without COMPLETE" 8 \
    "loco train: error: broken/checkpoint-6/COMPLETE: not found, so the checkpoint is not whole; \
resume from another" \
    $train --output_dir broken --resume_from_checkpoint broken/checkpoint-6
refuses "two processes on one folder" 8 \
    "loco train: error: $(flock whole/.lock $again 2>&1 | sed 's/^loco train: error: //')" \
    flock whole/.lock $again
says "names the other" "whole/.lock: in use by process "
refuses "a full disk while saving" 3 \
    "loco train: error: step 2: saving: full/checkpoint-2.tmp/model.safetensors: cannot write: No \
space left on device; checkpoints before it are whole: mend this, then go on with \
resume_from_checkpoint=auto" \
    env LOCO_FAULT=enospc:save:1 $train --output_dir full --save_steps 2
[ ! -e full/checkpoint-2 ] && [ ! -e full/checkpoint-2.tmp ]
verdict $? "leaves nothing half-written"
refuses "an output folder that cannot be" 3 \
    "loco train: error: d/test.jsonl: cannot make this folder: File exists" \
    $train --output_dir d/test.jsonl
cp -r m huge
printf '\177\177' | dd of=huge/model.safetensors bs=1 conv=notrunc \
    seek=$(($(wc -c <huge/model.safetensors) - 2)) 2>/dev/null
$train --model huge --output_dir nan >out 2>err
[ $? -eq 9 ]
verdict $? "a step that is not finite stops the run"
says "names the step" "loco train: error: step 1: "
[ -s nan/samples/step-1.jsonl ] && [ ! -e nan/checkpoint-1 ]
verdict $? "its samples are saved, and no checkpoint"
finish
