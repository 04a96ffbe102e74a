#!/bin/sh
# restart-exactness: a run killed at every named point and resumed ends in the bytes of the run that
# was not; perf.jsonl has each step once. usage: train_restart.sh PATH-OF-LOCO, from the repository
# root
loco=$1
. tests/runs.sh

small="--model m --data d/train.jsonl --max_steps 8 --save_steps 1 --prompts_per_step 4
    --learning_rate 1e-2 --max_prompt_length 16 --max_completion_length 5 --microbatch_tokens 64
    --threads 1"
head -n 10 d/train.jsonl >few.jsonl # a step straddles two epochs
train="train $small --num_generations 4 --reward exact,random --reward_weights 1,0.5"
eval="--eval_data d/test.jsonl --eval_steps 3 --eval_on_start --num_generations_eval 2
    --data few.jsonl --beta 0.05 --load_best_model_at_end --loss_type grpo --weight_decay 0.01"

# restarted WHAT NAME FAULT OPTIONS...: a run that the fault kills and that is then resumed is NAME.
restarted() {
    what=$1 name=$2 fault=$3
    shift 3
    rm -rf again
    LOCO_FAULT=$fault "$loco" "$@" --output_dir again >"$scratch/out" 2>"$scratch/err"
    [ $? -eq 137 ]
    verdict $? "$fault kills $what"
    works "it goes on" "$loco" "$@" --output_dir again --resume_from_checkpoint auto
    same_run $name again
    verdict $? "to the same bytes"
    each_step_once again 8
    verdict $? "and each step's time once"
}

works "a run" "$loco" $train --output_dir plain
each_step_once plain 8
verdict $? "has a line for each step"
# The n-th passing of a point: before the first checkpoint, in the middle, at the last step.
for fault in start:1 step:1 samples:1 metrics:2 logged:3 save:1 save:4 save-weights:5 \
    save-optimizer:3 save-state:6 save-complete:7 save-renamed:1 save-renamed:8 save-removing:1 \
    save-removing:6 concluded:2 remove:1 remove:12 commit:1 commit:2 commit:40 commit:77; do
    restarted "a run" plain $fault $train
done

works "a run with a reference, evaluations and epochs" "$loco" $train $eval --output_dir best
for fault in eval:1 eval:2 eval:4 step:6 save-removing:3 step:3; do
    restarted "it" best $fault $train $eval
done

works "a supervised run" "$loco" sft $small --data d/sft.jsonl --output_dir warm
for fault in step:1 step:5 save-optimizer:2 save-removing:4; do
    restarted "a supervised run" warm $fault sft $small --data d/sft.jsonl
done

# Twice in one run, the second time while it is resumed.
rm -rf again
LOCO_FAULT=save-state:3 "$loco" $train --output_dir again >/dev/null 2>&1
LOCO_FAULT=save-renamed:3 "$loco" $train --output_dir again --resume_from_checkpoint auto \
    >/dev/null 2>&1
works "a run killed twice goes on" "$loco" $train --output_dir again --resume_from_checkpoint auto
same_run plain again
verdict $? "to the same bytes"
works "a finished run goes on" "$loco" $train --output_dir again --resume_from_checkpoint auto
says "to its end" "done: again/checkpoint-8"
same_run plain again
verdict $? "and stays as it was"

# From an older checkpoint: what came after it is written again.
works "a run that keeps all" "$loco" $train --save_total_limit none --output_dir all
cp -r all again-all
works "goes on from an older checkpoint" "$loco" $train --save_total_limit none \
    --output_dir again-all --resume_from_checkpoint again-all/checkpoint-3
says "which it names" "resume     again-all/checkpoint-3, step 3"
same_run all again-all
verdict $? "to the same bytes"
cp -r all again-few
LOCO_FAULT=step:2 "$loco" $train --output_dir again-few \
    --resume_from_checkpoint again-few/checkpoint-3 >/dev/null 2>&1
works "also when killed on the way" "$loco" $train --output_dir again-few \
    --resume_from_checkpoint auto
says "from the newest that is left" "resume     again-few/checkpoint-4, step 4"
same_run plain again-few
verdict $? "with fewer kept"
finish
