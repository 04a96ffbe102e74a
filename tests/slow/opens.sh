#!/bin/sh
# Folders that LoCo writes open in transformers, with the log-probabilities and token ids that loco
# gives, and folders that transformers writes open here. usage: LOCO_ORACLE=PYTHON opens.sh
# PATH-OF-LOCO, from the repository root; PYTHON has torch and transformers. Skipped where
# LOCO_ORACLE is not set. MODEL_DIR may name a real folder, which is then compared too.
loco=$1
. tests/shell.sh
if [ -z "$LOCO_ORACLE" ]; then
    echo "LOCO_ORACLE is not set: skipped"
    exit 77
fi

for arch in llama qwen2 qwen3; do
    for tied in true false; do
        model=$scratch/$arch-$tied
        "$loco" init --out "$model" --arch $arch --hidden_size 96 --num_hidden_layers 3 \
            --num_attention_heads 6 --num_key_value_heads 2 --head_dim 24 --intermediate_size 200 \
            --tie_word_embeddings $tied --initializer_range 0.12 --rope_theta 5000 >/dev/null
        works "$arch, tied $tied: transformers opens what loco init writes and agrees" \
            "$LOCO_ORACLE" tests/slow/opens.py "$loco" "$model"
    done
done

"$loco" data sums --out "$scratch/d" >/dev/null
works "a supervised run" "$loco" sft --model "$scratch/qwen3-true" --data "$scratch/d/sft.jsonl" \
    --output_dir "$scratch/run" --max_steps 3 --max_prompt_length 64 --max_completion_length 8
works "transformers opens its checkpoint and agrees" \
    "$LOCO_ORACLE" tests/slow/opens.py "$loco" "$scratch/run/checkpoint-3"
works "a fresh model of a checkpoint's tokenizer" "$loco" init --out "$scratch/again" \
    --tokenizer "$scratch/run/checkpoint-3" --arch llama
works "transformers opens it and agrees" \
    "$LOCO_ORACLE" tests/slow/opens.py "$loco" "$scratch/again"
works "random models of odd shapes have transformers' log-probabilities" \
    "$LOCO_ORACLE" tests/slow/models.py "$loco" "$scratch" 24 1
if [ -n "$MODEL_DIR" ]; then
    works "$MODEL_DIR agrees" "$LOCO_ORACLE" tests/slow/opens.py "$loco" "$MODEL_DIR"
fi
finish
