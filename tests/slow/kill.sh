#!/bin/sh
# restart-exactness: a run of 20 steps killed at 50 random moments, each resumed until the next one,
# ends in the bytes of the run that was not killed. Moments are spread over the whole of a run, so
# they fall into every phase; KILL_SEED picks others. usage: kill.sh PATH-OF-LOCO, from the
# repository root
loco=$1
. tests/runs.sh
seed=${KILL_SEED:-$(date +%s)}
echo "KILL_SEED=$seed"

train="train --model m --data d/train.jsonl --max_steps 20 --save_steps 1 --prompts_per_step 8
    --num_generations 8 --reward exact,random --beta 0.05 --learning_rate 1e-2
    --max_prompt_length 16 --max_completion_length 12 --eval_data d/test.jsonl --eval_steps 3
    --eval_on_start --load_best_model_at_end"

begin=$(date +%s%N)
works "a run" "$loco" $train --output_dir plain
took=$(($(date +%s%N) - begin))

# chance I: a number from 0 to 999, the I-th of this seed.
chance() {
    awk -v seed=$((seed + $1)) 'BEGIN {srand(seed); rand(); print int(1000 * rand())}'
}
# Runs are killed after up to a third of a whole run's time, from wherever they are; one that ends
# is compared, and the next begins anew.
killed=0
ended=0
rm -rf again
while [ $killed -lt 50 ]; do
    "$loco" $train --output_dir again --resume_from_checkpoint auto >out 2>err &
    background=$!
    sleep "$(awk -v ns=$took -v part="$(chance $((killed + 100 * ended)))" \
        'BEGIN {print ns * 1e-9 * part / 3000}')"
    kill -KILL $background 2>/dev/null
    wait $background 2>/dev/null
    status=$?
    background=
    case $status in
    137) killed=$((killed + 1)) ;;
    0)
        ended=$((ended + 1))
        same_run plain again && each_step_once again 20
        verdict $? "after $killed kills: the same bytes"
        rm -rf again
        ;;
    *)
        cat err
        verdict 1 "after $killed kills: it goes on"
        break
        ;;
    esac
done
works "after all kills it goes on" "$loco" $train --output_dir again --resume_from_checkpoint auto
same_run plain again && each_step_once again 20
verdict $? "to the same bytes"
echo "$killed kills, $ended runs that ended on the way"
finish
