#!/bin/sh
# loco train and loco sft: what a run does, says, counts, keeps, and how it is stopped.
# usage: train_run.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/runs.sh

train="$loco train --model m --data d/train.jsonl --prompts_per_step 4 --num_generations 4
    --learning_rate 1e-2 --max_prompt_length 16 --max_completion_length 6 --microbatch_tokens 64
    --threads 1"

# holds WHAT COMMAND...: a case that the command, run silently, decides.
holds() {
    what=$1
    shift
    "$@" >/dev/null 2>&1
    verdict $? "$what"
}
# metric RUN NAME: its values, a line each.
metric() {
    sed -n 's|.*"'"$2"'": \([^,}]*\).*|\1|p' "$1/metrics.jsonl" "$1/perf.jsonl"
}
# is WHAT GOT WANTED: compares lists, whatever the white space.
is() {
    # shellcheck disable=SC2086
    if [ "$(echo $2)" = "$3" ]; then
        verdict 0 "$1"
    else
        echo "    wanted $3, got $(echo $2)"
        verdict 1 "$1"
    fi
}

# ---- what is printed ----
works "a dry run" $train --reward math --output_dir none/run --max_steps 8 --dry_run
says "shows the resolved options" "reduction_leaves: 4"
says "the data" "data       d/train.jsonl: 75 rows, 75 usable"
says "the steps" "steps      8 of 4 prompts x 4 samples, in 4 leaves"
says "the loss's denominator" "loss       dapo: token sum / trained tokens of the step"
says "the clipping" "clip       ratio in [0.8, 1.2]"
says "the deviation" "advantage  (total - group mean) / (unbiased group std + 1e-4), 0 when all"
says "the KL" "kl         none, beta 0"
says "the memory" "memory     weights, bf16 and packed "
holds "and starts nothing" [ ! -e none ]
works "a dry run with another definition" $train --reward math --output_dir none/run --dry_run \
    --beta 0.1 --scale_rewards none --loss_type dr_grpo --epsilon_high 0.28
says "of the KL" "kl         k3 x importance ratio, beta 0.1"
says "of the advantage" "advantage  total - group mean, 0 when all totals are equal"
says "of the loss" "loss       dr_grpo: token sum / (samples x max_completion_length)"
says "of the clipping" "clip       ratio in [0.8, 1.28]"
says "of lengths" "lengths    in tokens, the stop token included"

works "a run" $train --reward exact,random --reward_weights 1,0.5 --output_dir run --max_steps 8 \
    --save_steps 2 --logging_steps 3 --log_completions true --eval_data d/test.jsonl \
    --eval_steps 4 --eval_on_start --num_generations_eval 2
cp out said
says "what the reward is" "reward     exact + 0.5 x random"
is "a line for step 0, the first due one, and every third" \
    "$(sed -n 's|^step \([0-9]*\)/8 .*|\1|p' said)" "0 3 6 8"
is "a prompt with its completions at each of them" "$(grep -c '^  prompt: What is' said)" 2
grep -q '^done: run/checkpoint-8$' said &&
    grep -q '^best evaluation: reward [0-9.]* after step' said
verdict $? "where the result is, and the best evaluation"

# ---- what is counted ----
is "a line for each step" "$(metric run step)" "0 1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 8"
is "the learning rate falls to a last step above 0" "$(metric run learning_rate)" \
    "0.01 0.00875 0.0075 0.00625 0.005 0.00375 0.0025 0.00125"
is "evaluations at the start, when due and at the end" \
    "$(grep -n '"eval/reward"' run/metrics.jsonl | cut -d: -f1)" "1 5 9"
is "the epoch" "$(metric run epoch | tail -n 1)" "0.4266666666666667"
tokens=$(sed 's/.*"prompt": "\([^"]*\)".*"token_ids": \(\[[^]]*\]\).*/\1\t\2/' run/samples/*.jsonl |
    awk -F '\t' '{n += length($1) + gsub(",", "", $2) + 1} END {print n}')
is "the tokens of prompts and completions" "$(metric run num_tokens | tail -n 1)" "$tokens"
for name in reward reward_std rewards/exact/mean rewards/random/std frac_reward_zero_std \
    completions/mean_length completions/clipped_ratio completions/max_terminated_length entropy \
    clip_ratio/low_mean clip_ratio/region_mean importance_ratio/p99 advantage/abs_mean \
    sampling/sampling_logp_difference/max sampling/importance_sampling_ratio/mean grad_norm \
    prompt_length/max approx_kl eval/pass@2 eval/maj@2 eval/mean_length time/step time/rollout \
    tokens_per_s memory/anonymous_bytes pack/padding_ratio pack/seqs_per_row mfu \
    tokens_per_s_per_device longest_sample_tokens_per_s policy_loss param_norm update_norm \
    rollout/empty; do
    is "$name is a number" "$(metric run $name | grep -c '^[-0-9.e]*$' | sed 's/^[1-9].*/yes/')" yes
done
is "the weighted sum of rewards" "$(
    metric run rewards/exact/mean | tail -n 1 >a
    metric run rewards/random/mean | tail -n 1 | paste a - | awk '{print $1 + $2 / 2}'
)" "$(metric run reward | tail -n 1)"

is "the samples that say nothing" "$(metric run rollout/empty | tail -n 1)" "$(
    grep -c '"stop": "stop".*"token_ids": \[[0-9]*\]' run/samples/step-8.jsonl |
    awk '{print $1 / 16}')"
is "the samples of a micro-batch" "$(metric run pack/seqs_per_row | tail -n 1)" 4

# time-adds-up, in every step: shares, and phases.
adds_up() { # NAME...: of these times
    for name in step "$@"; do
        metric run time/$name >"$scratch/time.$name"
    done
    (cd "$scratch" && paste time.step $(printf 'time.%s ' "$@")) | awk '
        {sum = 0; for (i = 2; i <= NF; i++) sum += $i}
        sum < 0.99 * $1 || sum > 1.01 * $1 {exit 1}'
}
holds "compute, network, waiting and host are the step (time-adds-up)" \
    adds_up compute network waiting host
holds "and so are its phases" \
    adds_up data rollout reward ref_logp adv update check apply sync wait log eval save other

# ---- samples ----
is "all samples of a step" "$(wc -l <run/samples/step-8.jsonl)" 16
for field in format step epoch index sample prompt completion answer stop scores reward advantage \
    origin weight_version token_ids logprobs; do
    holds "a sample's $field" grep -q "\"$field\": " run/samples/step-8.jsonl
done
is "drawn by the weights of the step before" \
    "$(sed 's/.*"weight_version": \[\[\([0-9]*\),.*/\1/' run/samples/step-8.jsonl | uniq)" 7
works "an epoch, and what a last step needs of the next" $train --reward random --output_dir epoch \
    --num_train_epochs 1 --prompts_per_step 6 --save_steps none
says "is rounded up" "steps      13 of 6 prompts"
cat epoch/samples/*.jsonl | sed 's/.*"epoch": \([0-9]*\), "index": \([0-9]*\),.*/\1 \2/' |
    sort -u >draws
is "no row is lost or repeated" "$(grep -c '^0 ' draws) $(grep -c '^1 ' draws)" "75 3"
works "unshuffled" $train --reward random --output_dir line --shuffle_dataset false --max_steps 1 \
    --save_steps none
is "they come in the file's order" \
    "$(sed 's/.*"index": \([0-9]*\),.*/\1/' line/samples/step-1.jsonl | uniq)" "0 1 2 3"

# ---- schedules ----
for way in "constant 0 0.01 0.01 0.01 0.01" "constant_with_warmup 2 0 0.005 0.01 0.01" \
    "linear 2 0 0.005 0.01 0.005" "cosine 2 0 0.005 0.01 0.005"; do
    # shellcheck disable=SC2086
    set -- $way
    works "$1" $train --reward random --output_dir lr --max_steps 4 --lr_scheduler_type $1 \
        --warmup_steps $2 --save_steps none
    is "its learning rates" "$(metric lr learning_rate)" "$3 $4 $5 $6"
    rm -rf lr
done

# ---- what is kept ----
is "two checkpoints" "$(checkpoints run)" "checkpoint-6 checkpoint-8"
works "one and the best" $train --reward random --output_dir best --max_steps 6 --save_steps 2 \
    --save_total_limit 1 --load_best_model_at_end --eval_data d/test.jsonl --eval_steps 1
best=$(sed -n 's/^best evaluation: .*, which is best\/checkpoint-\([0-9]*\)$/\1/p' out)
is "the best evaluation's is named and kept" "$(checkpoints best)" "$(
    printf 'checkpoint-%d\n' "$best" 6 | sort -u | tr '\n' ' ' | sed 's/ $//')"
is "it is the highest" "$(metric best eval/reward | awk -v n="$best" '
    NR == 1 || $1 > top {top = $1; at = NR} END {print at}')" "$best"
works "rewards that are all equal, evaluated from the start" $train --reward format \
    --output_dir ties --max_steps 4 --save_steps none --load_best_model_at_end \
    --eval_data d/test.jsonl --eval_steps 2 --eval_on_start
is "have three evaluations" "$(metric ties eval/reward)" "0 0 0"
says "the best is the earliest after a step" \
    "best evaluation: reward 0.0000 after step 2, which is ties/checkpoint-2"
works "it evaluates" "$loco" eval --model best/checkpoint-$best --data d/test.jsonl \
    --reward random --num_generations 4 --max_prompt_length 16 --max_completion_length 6 --json
is "to what the run said" "$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' out | head -n 1)" \
    "$(metric best eval/acc | sed -n "${best}p")"
works "the folder is inspected" "$loco" inspect run
says "its checkpoints" "  checkpoint-8  yes"
says "its curve" "┤"
works "a checkpoint is inspected" "$loco" inspect run/checkpoint-8
says "it is whole" "files, sizes and checksums as written"
works "it samples" "$loco" generate --model run/checkpoint-8 --prompt x --max_completion_length 4
works "the run's own configuration is one" "$loco" train --config run/config.yaml \
    --resume_from_checkpoint auto
says "that goes on" "done: run/checkpoint-8"
works "as long as is asked" $train --reward random --output_dir flat --max_steps 2 \
    --lr_scheduler_type constant
works "and longer" $train --reward random --output_dir flat --max_steps 4 \
    --lr_scheduler_type constant --resume_from_checkpoint auto
works "at once" $train --reward random --output_dir flat4 --max_steps 4 \
    --lr_scheduler_type constant --save_steps 2
holds "are the same steps" same_steps flat flat4
holds "and weights" cmp flat/checkpoint-4/model.safetensors flat4/checkpoint-4/model.safetensors

# ---- supervised runs ----
works "a supervised run" "$loco" sft --model m --data d/sft.jsonl --output_dir warm --max_steps 3 \
    --threads 1 \
    --max_prompt_length 16 --max_completion_length 2
says "drops what does not fit and says so" "longer than max_completion_length (first on line "
says "its steps" "step 3/3  loss "
is "has no samples" "$(ls warm)" "checkpoint-3 config.yaml env.json metrics.jsonl perf.jsonl"
printf '{"prompt": "%s", "answer": "1"}\n' 12345678901234567 1234567890123456 >long.jsonl
works "prompts that are too long" $train --data long.jsonl --reward exact --output_dir long \
    --prompts_per_step 1 --max_steps 1
says "are dropped and counted" \
    "long.jsonl: 2 rows, 1 usable; dropped: 1 longer than max_prompt_length (first on line 1)"

# ---- edges ----
works "answers of one token, and none of them counts" $train --reward random --output_dir cut \
    --max_steps 2 --max_completion_length 1 --mask_truncated_completions true
is "then nothing is learned" "$(metric cut grad_norm)" "0 0"
works "rewards that are all equal" $train --reward format --output_dir equal --max_steps 2
is "teach nothing" "$(metric equal grad_norm) $(metric equal frac_reward_zero_std)" "0 0 1 1"
head -n 1 d/train.jsonl >one.jsonl
works "a data set smaller than a step" $train --reward random --data one.jsonl --output_dir one \
    --max_steps 2
is "is drawn again and again" \
    "$(sed 's/.*"epoch": \([0-9]*\), .*/\1/' one/samples/step-2.jsonl | uniq)" "4 5 6 7"
holds "and never the same" \
    [ "$(sed 's/.*token_ids//' one/samples/*.jsonl | sort -u | wc -l)" -gt 30 ]

works "no memory of gradients" $train --reward random --output_dir forgets --max_steps 2 \
    --adam_beta1 0 --adam_beta2 0
works "nor in a supervised run" "$loco" sft --model m --data d/sft.jsonl --output_dir forgets-sft \
    --max_steps 2 --threads 1 --max_prompt_length 16 --adam_beta1 0 --adam_beta2 0
is "both move" "$(metric forgets update_norm | grep -c '^[0-9.]*[1-9]') \
$(metric forgets-sft update_norm | grep -c '^[0-9.]*[1-9]')" "2 2"

# ---- memory ----
works "many steps" $train --reward exact,random --output_dir many --max_steps 150 --save_steps 25 \
    --logging_steps 150 --prompts_per_step 8
ledger=$(sed -n 's/^memory .*together \([0-9.]*\) \([KMG]iB\)$/\1 \2/p' out | awk '
    {unit["KiB"] = 1; unit["MiB"] = 1024; print $1 * unit[$2] * 1024}')
metric many memory/anonymous_bytes >anonymous
holds "use what the ledger says, within 5 % and 32 MiB" \
    awk -v ledger="$ledger" '$1 > 1.05 * ledger + 32 * 2 ^ 20 {exit 1}' anonymous
holds "and do not grow" awk 'NR == 50 {at = $1} NR > 50 && $1 > at + 2 ^ 18 {exit 1}' anonymous

works "a micro-batch larger than a leaf" $train --reward math --output_dir none/run --dry_run \
    --microbatch_tokens 1000000
says "is made as large as a leaf" "micro-batches of up to 39 tokens"

# ---- how it is stopped ----
waits_for() { # FILE: until it is there, at most a minute
    for _ in $(seq 600); do
        [ -s "$1" ] && return 0
        sleep 0.1
    done
    return 1
}
long="--reward random --max_steps 100000 --save_steps none --lr_scheduler_type constant"
$train $long --output_dir stopped >out 2>err &
background=$!
waits_for stopped/samples/step-2.jsonl
kill -INT $background
wait $background
is "Ctrl-C ends a run with status" $? 130
background=
says "it says what it does" "stopping after this step or evaluation; once more to leave at once"
at=$(checkpoints stopped)
says "and where" "loco train: error: stopped after step ${at#checkpoint-}, which is saved; go on \
with resume_from_checkpoint=auto"
holds "it has saved" [ -s stopped/$at/COMPLETE ]
is "and recorded every step until there" "$(tail -n 1 stopped/metrics.jsonl | cut -d, -f1)" \
    "{\"step\": ${at#checkpoint-}"
$train $long --output_dir twice --prompts_per_step 64 --num_generations 64 \
    --max_completion_length 256 --decode_slots 16 >out 2>err &
background=$!
waits_for out
kill -INT $background
sleep 0.2
kill -INT $background
wait $background
is "a second Ctrl-C leaves at once with status" $? 130
background=
is "and with nothing saved" "$(ls twice)" "config.yaml env.json metrics.jsonl perf.jsonl"
short="--reward random --max_steps 5 --save_steps none"
refuses "a signal before a step looks for it" 130 "
stopping after this step or evaluation; once more to leave at once
loco train: error: stopped after step 2, which is saved; go on with resume_from_checkpoint=auto" \
    env LOCO_FAULT=int:logged:2 $train $short --output_dir seen
is "ends with that step" "$(checkpoints seen)" checkpoint-2
refuses "a signal after it" 130 "
stopping after this step or evaluation; once more to leave at once
loco train: error: stopped after step 3, which is saved; go on with resume_from_checkpoint=auto" \
    env LOCO_FAULT=int:concluded:2 $train $short --output_dir unseen
is "ends with the next one" "$(checkpoints unseen)" checkpoint-3
seq 20000 | sed 's/.*/{"prompt": "What is &", "answer": "1"}/' >many.jsonl
$train $long --output_dir early --eval_data many.jsonl --eval_on_start >out 2>err &
background=$!
waits_for out
kill -INT $background
wait $background
is "Ctrl-C in the evaluation before the first step ends with status" $? 130
background=
says "also there it says what it does" \
    "stopping after this step or evaluation; once more to leave at once"
says "and where" "loco train: error: stopped before step 1; go on with resume_from_checkpoint=auto"
is "the evaluation is kept" "$(metric early step)" "0 0"

# ---- where it cannot speak ----
full="loco train: error: standard output: cannot write: No space left on device"
refuses "a dry run that cannot be shown" 3 "$full" \
    sh -c '"$@" >/dev/full' sh $train --reward random --output_dir none/run --dry_run
refuses "a run that cannot be shown" 3 \
    "$full: stopped before step 1; go on with resume_from_checkpoint=auto" \
    sh -c '"$@" >/dev/full' sh $train --reward random --output_dir mute --max_steps 2
$train $long --output_dir closed 2>err | head -n 1 >out
holds "a reader that leaves ends a run, saved" ls closed/checkpoint-*/COMPLETE
at=$(checkpoints closed)
is "which is said" "$(cat err)" "loco train: error: standard output: cannot write: Broken pipe: \
stopped after step ${at#checkpoint-}, which is saved; go on with resume_from_checkpoint=auto"
finish
