# What tests of whole runs share, beside tests/shell.sh, which it sources: a tiny model m and data d
# in the scratch folder, which becomes the current one, and how two runs are compared. Source it
# from the repository root, with the path of loco in $loco.

# Every file of a checkpoint is synced, which real disks take their time for.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. tests/shell.sh
cd "$scratch" || exit 1
loco=$(cd "$OLDPWD" && realpath "$loco")
"$loco" init --out m --hidden_size 32 --num_hidden_layers 2 --num_attention_heads 2 \
    --initializer_range 0.2 >/dev/null || exit 1
"$loco" data sums --out d --test_rows 6 >/dev/null || exit 1

# checkpoints RUN: names of its checkpoints, and of whatever else is beside them.
checkpoints() {
    (cd "$1" && ls -d checkpoint-*)
}

# same_steps RUN OTHER: the same metrics and samples.
same_steps() {
    cmp "$1/metrics.jsonl" "$2/metrics.jsonl" || return 1
    [ ! -e "$1/samples" ] && [ ! -e "$2/samples" ] || diff -r "$1/samples" "$2/samples"
}

# same_run RUN OTHER: the same metrics, samples and checkpoints, every file of them.
same_run() {
    [ "$(checkpoints "$1")" = "$(checkpoints "$2")" ] && same_steps "$1" "$2" || return 1
    for name in $(checkpoints "$1"); do
        diff -r "$1/$name" "$2/$name" || return 1
    done
}

# each_step_once RUN STEPS: perf.jsonl has the steps in order, and no other line but that of step 0.
each_step_once() {
    sed 's/^{"step": \([0-9]*\),.*}$/\1/' "$1/perf.jsonl" | grep -vx 0 >"$scratch/steps"
    seq "$2" | cmp - "$scratch/steps"
}

# again FOLDER [OPTIONS...]: the run that $train makes, resumed in that folder.
again() {
    folder=$1
    shift
    $train --output_dir "$folder" --resume_from_checkpoint auto "$@"
}
