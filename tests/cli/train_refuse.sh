#!/bin/sh
# no-silent-loss: what loco train and loco sft refuse, with the exact message; what a failed save
# leaves; steps that break. usage: train_refuse.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/runs.sh

small="--model m --data d/train.jsonl --prompts_per_step 4 --max_steps 4 --save_steps 1
    --learning_rate 1e-2 --max_prompt_length 16 --max_completion_length 5 --microbatch_tokens 64
    --threads 1"
train="$loco train $small --num_generations 4 --reward exact,random"

# refused WHAT STATUS TEXT OPTIONS...: a run in the new folder `new` is refused and leaves nothing.
refused() {
    what=$1 status=$2 text=$3
    shift 3
    refuses "$what" "$status" "loco train: error: $text" $train --output_dir new "$@"
    [ ! -e new ]
    verdict $? "$what: nothing is made"
    rm -rf new
}

# ---- options ----
refused "an unknown option" 2 \
    "command line: no option 'learning_rat'; did you mean 'learning_rate'?" \
    learning_rat=1
refused "an option that is not there yet" 2 \
    "command line: no option 'top_p'; loco train --help lists all" --top_p 0.9
refused "a temperature that floats cannot hold" 2 \
    "temperature: expected 0, which takes the most likely token, or at least 1e-06, got 1e-38" \
    --temperature 1e-38
refused "one sample" 2 \
    "num_generations: expected at least 2, since an advantage compares samples of one prompt, got \
1" --num_generations 1
refused "too many samples" 2 \
    "command line: num_generations: expected an integer from 1 to 1024, got '1025'" \
    --num_generations 1025
refused "greedy training" 2 \
    "temperature: expected more than 0 in training, since all samples of a prompt would be the \
same" --temperature 0
refused "an unknown reward" 2 \
    "reward: 'maths' is not known; expected exact, format, math or random" --reward maths
refused "weights that do not fit" 2 \
    "reward_weights: got 1 for 2 rewards; give one for each, in their order, or none for 1 each" \
    --reward_weights 1
refused "more devices than leaves" 2 \
    "devices 5 is more than reduction_leaves 4; lower devices or raise reduction_leaves and \
prompts_per_step" --devices 5
refused "a leaf past counting" 2 \
    "a leaf of up to 2150000000 tokens is too large; raise reduction_leaves, or lower \
prompts_per_step, num_generations or max_completion_length" --reduction_leaves 1 \
    --prompts_per_step 1000000 --max_prompt_length 151 --max_completion_length 500
refused "lengths past the model's positions" 2 \
    "max_prompt_length 16 + max_completion_length 4000 is more than the model's \
max_position_embeddings 2048; lower one of them" --max_completion_length 4000
refused "a memory budget that is too small" 6 "$(
    $train --output_dir new --memory_budget 2MiB 2>&1 | sed 's/loco train: error: //')" \
    --memory_budget 2MiB
says "which names the sizes and the remedy" "and may use 2.00 MiB; the largest part is"
says "the remedy" "; lower microbatch_tokens, decode_slots, max_completion_length or devices"

# ---- data ----
printf '{"prompt": "a", "answer": "1"}\n{"prompt": "\377", "answer": "1"}\n' >rows.jsonl
refused "rows that are not UTF-8" 4 "rows.jsonl: line 2: byte 13: not UTF-8: save the file as \
UTF-8" --data rows.jsonl
printf '{"prompt": "a", "answer": "1"}\n{"prompt": "a", \n' >rows.jsonl
refused "rows that are not JSON" 4 "$(
    $train --output_dir new --data rows.jsonl 2>&1 | sed 's/loco train: error: //')" \
    --data rows.jsonl
says "the line" "rows.jsonl: line 2: "
printf '{"prompt": "a", "label": "1"}\n' >rows.jsonl
refused "a field that no row has" 7 "rows.jsonl: no row has a field 'answer', 'solution' or \
'ground_truth'; there are 'prompt' and 'label': name the right one with answer_field" \
    --data rows.jsonl
: >rows.jsonl
refused "an empty file" 7 \
    "rows.jsonl: the file has no rows: give JSONL, one object {...} a line" --data rows.jsonl
printf '{"prompt": "12345678901234567", "answer": "1"}\n{"prompt": "a", "answer": ""}\n' >rows.jsonl
refused "no usable row" 7 "rows.jsonl: no usable row among 2: 1 longer than max_prompt_length \
(first on line 1), 1 empty answer (first on line 2): mend the rows or the options" --data rows.jsonl
mkfifo pipe
for special in pipe /dev/null; do
    refused "rows in $special" 3 "$special: is not a regular file, which is needed here since it \
is read more than once; copy it to a file first" --data $special
done
refused "a folder of rows" 3 "m: is a folder, expected a file" --data m
refused "rows from standard input" 3 "-: standard input cannot be read more than once, which is \
needed here; save the rows to a file and give its name" --data -
refuses "a model's folder for the run" 2 \
    "loco train: error: output_dir: m/. is a model folder, since it holds config.json; give a \
folder of the run's own" $train --output_dir m/.
refused "no file" 3 "nowhere.jsonl: cannot open: No such file or directory" --data nowhere.jsonl
{
    printf '{"prompt": "'
    head -c 50000000 /dev/zero | tr '\0' a
    printf '", "answer": "1"}\n{"prompt": "a", "answer": "1"}\n'
} >rows.jsonl
works "a row of 50 MB" $train --output_dir new --data rows.jsonl --dry_run
says "is dropped and counted" "rows.jsonl: 2 rows, 1 usable; dropped: 1 "
rm rows.jsonl

# ---- models ----
# broken FILE SCRIPT: the folder c, a copy of m with sed's script applied to a file.
broken() {
    rm -rf c
    cp -r m c
    sed -i "$2" "c/$1"
}
broken config.json 's/"hidden_size": 32/"hidden_size": 64/'
refused "shapes that disagree" 4 \
    "c/model.safetensors: tensor 'model.embed_tokens.weight' has shape [259, 32], expected \
[259, 64]: the weights do not belong to this configuration" --model c
broken config.json 's/"vocab_size": 259/"vocab_size": 258/; s/_token_id": 258/_token_id": 1/'
sed -i 's/_token_id": 258/_token_id": 1/' c/generation_config.json
refused "a tokenizer with ids past the vocabulary" 4 \
    "c/tokenizer.json: has ids up to 258, but vocab_size in config.json is 258; the folder mixes \
two models" --model c
broken config.json ''
end=$(wc -c <c/model.safetensors)
printf '\300\177' | dd of=c/model.safetensors bs=1 conv=notrunc seek=$((end - 2)) 2>/dev/null
refused "NaN in the weights" 9 \
    "c/model.safetensors: tensor 'model.norm.weight' is NaN or infinite at element 31: these \
weights cannot be used, fetch them again or go back to an older checkpoint" --model c
mv c/model.safetensors c/model-00001-of-00002.safetensors
echo '{"metadata": {}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}' \
    >c/model.safetensors.index.json
refused "a shard that is not there" 3 \
    "c: shard 'model-00002-of-00002.safetensors' is named in model.safetensors.index.json but is \
not there: fetch it into this folder" --model c

# ---- files that change ----
cp d/train.jsonl big.jsonl
$train --output_dir cut --data big.jsonl --max_steps 100000 --save_steps none >/dev/null 2>err &
background=$!
for _ in $(seq 600); do
    [ -s cut/samples/step-1.jsonl ] && break
    sleep 0.1
done
: >big.jsonl
wait $background
[ $? -eq 3 ] && [ "$(tail -n 1 err)" = "loco train: error: big.jsonl: became shorter while it was \
read; leave files that are in use as they are: write a new file and rename it over the old one" ]
verdict $? "a data file that becomes shorter while it is read"
background=

# ---- disks ----
works "a run" $train --output_dir run
# full WHERE FILE VERB: the disk is full at that point; what is whole stays whole, and goes on.
full() {
    rm -rf full
    refuses "a full disk at $1" 3 "loco train: error: $2: No space left on device$3" \
        env LOCO_FAULT=enospc:$1 $train --output_dir full
    [ "$(ls full | grep -c '\.tmp$')" -eq 0 ]
    verdict $? "nothing half-written is left"
    works "it goes on when there is space" again full
    same_run run full
    verdict $? "to the same bytes"
}
rest="; checkpoints before it are whole: mend this, then go on with resume_from_checkpoint=auto"
full save:3 "step 3: saving: full/checkpoint-3.tmp/model.safetensors: cannot write" "$rest"
full save-weights:2 \
    "step 2: saving: full/checkpoint-2.tmp/optimizer-00001-of-00001.safetensors: cannot write" \
    "$rest"
full save-state:4 "step 4: saving: full/checkpoint-4.tmp/COMPLETE: cannot write" "$rest"
full step:3 "step 3: full/samples/step-3.jsonl: cannot write"
full samples:2 "step 2: full/metrics.jsonl: cannot append"
full metrics:2 "step 2: full/perf.jsonl: cannot append"

# A limit on the size of a file, which would otherwise end the process without a word.
# limited BLOCKS COMMAND...: with files of at most so many blocks of 512 bytes.
limited() {
    (ulimit -f "$1" && shift && exec "$@")
}
model=$(wc -c <run/checkpoint-4/model.safetensors)
refuses "a file size limit" 3 "loco train: error: step 1: saving: \
limit/checkpoint-1.tmp/optimizer-00001-of-00001.safetensors: cannot write: File too large$rest" \
    limited $((model / 512 + 2)) $train --output_dir limit
[ -z "$(checkpoints limit 2>/dev/null)" ]
verdict $? "nothing half-written is left"
works "it goes on without the limit" again limit
same_run run limit
verdict $? "to the same bytes"

# A real one, where a file system may be mounted.
mkdir disk
if mount -t tmpfs -o size=1200k none disk 2>/dev/null; then
    $train --output_dir disk/run >out 2>err
    [ $? -eq 3 ] && grep -q 'step 2: saving: disk/run/checkpoint-2.tmp/.*: No space left' err
    verdict $? "a small file system fills up"
    [ "$(checkpoints disk/run)" = checkpoint-1 ]
    verdict $? "the checkpoint before is all there is"
    works "it is whole" "$loco" inspect disk/run/checkpoint-1
    mount -o remount,size=8m disk
    works "it goes on when there is space" again disk/run
    same_run run disk/run
    verdict $? "to the same bytes"
    umount disk
else
    echo "skipped: a real full disk, since nothing may be mounted here"
fi

# As somebody who may not write everything.
user=
if [ "$(id -u)" -eq 0 ]; then
    user="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chmod 755 "$scratch"
    chown -R 65534:65534 run
fi
if $user true 2>/dev/null; then
    mkdir closed
    chmod 555 closed
    refuses "an output folder that cannot be made" 3 \
        "loco train: error: closed/run: cannot make this folder: Permission denied" \
        $user $train --output_dir closed/run
    chmod 555 run
    refuses "a run folder that cannot be written" 3 \
        "loco train: error: run/config.yaml.tmp: cannot open for writing: Permission denied" \
        $user $train --output_dir run --resume_from_checkpoint auto
    chmod 755 run
    works "the run is whole" $user "$loco" inspect run/checkpoint-4
else
    echo "skipped: folders that cannot be written, since there is no setpriv here"
fi
refuses "an output folder that is a file" 2 \
    "loco train: error: output_dir: d/test.jsonl is not a folder; give another name" \
    $train --output_dir d/test.jsonl

# ---- a caller that closed the standard descriptors ----
(exec $train --output_dir closed <&- >&- 2>&-)
[ -e closed/config.yaml ] && ! grep -qv '^{"step": ' closed/metrics.jsonl
verdict $? "no file gets the number of standard output"
[ "$(wc -c <closed/.lock)" -lt 16 ]
verdict $? "nor does the lock"

# ---- steps that break ----
# The final norm at bfloat16's largest number: finite weights whose logits are not.
cp -r m huge
printf '%64s' '' | tr ' ' '\177' |
    dd of=huge/model.safetensors bs=1 conv=notrunc seek=$((end - 64)) 2>/dev/null
refuses "a step that is not finite" 9 \
    "loco train: error: step 1: the gradient is not finite at model.embed_tokens.weight, element \
0; its samples are in broken/samples/step-1.jsonl" $train --model huge --output_dir broken
[ "$(wc -l <broken/samples/step-1.jsonl)" -eq 16 ] && [ -z "$(checkpoints broken 2>/dev/null)" ]
verdict $? "its samples are saved, and no checkpoint"
refuses "a supervised step that is not finite" 9 \
    "loco sft: error: step 1: the gradient is not finite at model.embed_tokens.weight, element 0" \
    "$loco" sft $small --model huge --data d/sft.jsonl --output_dir broken-sft
[ -z "$(checkpoints broken-sft 2>/dev/null)" ]
verdict $? "nothing of it is saved"
finish
