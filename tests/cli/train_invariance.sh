#!/bin/sh
# A run is a function of its configuration: devices, threads, micro-batches, slots and kernel levels
# change no byte of metrics, samples, weights, masters or moments.
# usage: train_invariance.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/runs.sh

train="train --model m --data d/train.jsonl --max_steps 3 --prompts_per_step 8
    --num_generations 4 --learning_rate 1e-2 --max_prompt_length 16 --max_completion_length 6
    --microbatch_tokens 64 --reward exact,random --beta 0.05 --eval_data d/test.jsonl --eval_steps 2
    --mask_truncated_completions true --temperature 0.9 --threads 1 --save_steps none"
sft="sft --model m --data d/sft.jsonl --max_steps 3 --prompts_per_step 8 --learning_rate 1e-2
    --max_prompt_length 16 --max_completion_length 6 --microbatch_tokens 64 --threads 1
    --save_steps none"

# same WHAT LIKE COMMAND...: run COMMAND and compare with the run in the folder LIKE.
same() {
    what=$1 like=$2
    shift 2
    rm -rf other
    works "$what: runs" "$@" --output_dir other
    same_steps $like other && diff -r $like/checkpoint-3 other/checkpoint-3
    verdict $? "$what: the same bytes"
}

# same_but_cut WHAT LIKE COMMAND...: the same, but the state's files are cut by devices.
same_but_cut() {
    what=$1 like=$2
    shift 2
    rm -rf other
    works "$what: runs" "$@" --output_dir other
    same_steps $like other && cmp $like/checkpoint-3/model.safetensors \
        other/checkpoint-3/model.safetensors
    verdict $? "$what: the same metrics, samples and weights"
    # Masters and moments: gone on from on one device, and saved again.
    rm -rf whole
    cp -r other whole
    works "$what: goes on" "$@" --devices 1 --output_dir whole --max_steps 4 \
        --lr_scheduler_type constant --resume_from_checkpoint auto
    cmp "${like}4/checkpoint-4/optimizer-00001-of-00001.safetensors" \
        whole/checkpoint-4/optimizer-00001-of-00001.safetensors
    verdict $? "$what: the same masters and moments"
}

works "one device, one thread" "$loco" $train --output_dir run
same "two threads" run "$loco" $train --threads 2
same "micro-batches of one sample" run "$loco" $train --microbatch_tokens 1
same "micro-batches of some groups" run "$loco" $train --microbatch_tokens 100
same "one micro-batch" run "$loco" $train --microbatch_tokens 4096
same "three slots" run "$loco" $train --decode_slots 3
same "little memory for keys and values" run "$loco" $train --kv_memory 1MiB
same "portable kernels" run env LOCO_KERN=portable "$loco" $train

constant="--lr_scheduler_type constant"
works "a step more" "$loco" $train $constant --max_steps 4 --output_dir flat4
works "a step less" "$loco" $train $constant --output_dir flat
for devices in 2 3 7; do
    same_but_cut "$devices devices" flat "$loco" $train $constant --devices $devices
done

works "a supervised run" "$loco" $sft --output_dir warm
same "two threads, supervised" warm "$loco" $sft --threads 2
same "micro-batches of one row, supervised" warm "$loco" $sft --microbatch_tokens 1
same "portable kernels, supervised" warm env LOCO_KERN=portable "$loco" $sft
works "a step more" "$loco" $sft $constant --max_steps 4 --output_dir warmflat4
works "a step less" "$loco" $sft $constant --output_dir warmflat
same_but_cut "two devices, supervised" warmflat "$loco" $sft $constant --devices 2
finish
