#!/bin/sh
# loco init and loco data: what they write is fixed by the seed, whole, and never over something.
# usage: init.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
cd "$scratch" || exit 1
loco=$(cd "$OLDPWD" && realpath "$loco")
small="--hidden_size 32 --num_hidden_layers 1 --num_attention_heads 2"

for arch in llama qwen2 qwen3; do
    works "a fresh $arch" "$loco" init --out $arch --arch $arch $small
    works "its weights are sound" "$loco" inspect $arch
    says "every one" "weights all there, shaped as config.json says, every value finite"
done
works "the same again, elsewhere" "$loco" init --out a/b/again/ --arch qwen3 $small
cmp -s qwen3/model.safetensors a/b/again/model.safetensors
verdict $? "gives the same bytes"
works "with another seed" "$loco" init --out other --arch qwen3 $small --seed 7
! cmp -s qwen3/model.safetensors other/model.safetensors
verdict $? "gives other weights"
[ "$(cksum <qwen3/model.safetensors)" = "1052021312 50928" ]
verdict $? "the weights are those of every machine"
[ "$(cat qwen3/generation_config.json)" = '{
  "bos_token_id": null,
  "eos_token_id": 258,
  "pad_token_id": 256
}' ]
verdict $? "completions end at <|im_end|>"

works "another model's tokenizer" "$loco" init --out copy --tokenizer llama $small
cmp -s copy/tokenizer.json llama/tokenizer.json
verdict $? "is copied"
refuses "a folder that is not empty" 2 \
    "loco init: error: out: copy exists and is not empty; remove it or give another folder" \
    "$loco" init --out copy
refuses "a file" 2 "loco init: error: out: copy/config.json is a file; give another name" \
    "$loco" init --out copy/config.json
refuses "a tokenizer that is not there" 3 \
    "loco init: error: tokenizer: nowhere: cannot open: No such file or directory" \
    "$loco" init --out new --tokenizer nowhere
refuses "heads that do not divide the width" 2 \
    "loco init: error: head_dim: hidden_size (256) is no multiple of num_attention_heads (3), so \
it must be given" \
    "$loco" init --out new --num_attention_heads 3
refuses "sizes that are not supported" 2 \
    "loco init: error: num_attention_heads 512 and num_key_value_heads 512 of head_dim 128 are \
not supported; q, k and v of a token may have 65536 numbers" \
    "$loco" init --out new --num_attention_heads 512 --head_dim 128
refuses "a context that is too long" 2 \
    "loco init: error: command line: max_position_embeddings: expected an integer from 1 to \
16777216, got '16777217'" "$loco" init --out new --max_position_embeddings 16777217
refuses "a full disk" 3 \
    "loco init: error: new.tmp/model.safetensors: cannot write: No space left on device" \
    env LOCO_FAULT=enospc:init:1 "$loco" init --out new
[ ! -e new ] && [ ! -e new.tmp ]
verdict $? "nothing is left of what failed"
env LOCO_FAULT=init:1 "$loco" init --out new $small 2>/dev/null
[ ! -e new ]
verdict $? "killed half-way, the name shows nothing"
refuses "the next call deletes nothing that it did not make" 2 \
    "loco init: error: out: new.tmp is in the way: another call is writing it, or one was killed; \
remove it or give another folder" \
    "$loco" init --out new $small
rm -r new.tmp
works "and works when that is gone" "$loco" init --out new $small
[ ! -e new.tmp ]
verdict $? "and leaves no remains"
printf '{"eos_token": "<|im_end|>", "chat_template": "x",\n"model_max_length": %s}' \
    1000000000000000019884624838656 >copy/tokenizer_config.json
works "a length of ten to the thirtieth" "$loco" init --out big --tokenizer copy $small
works "the template beside it" "$loco" inspect copy
says "is seen" "chat template "
grep -q "^chat template  *yes$" "$scratch/out"
verdict $? "as one that is there"
mkdir empty
works "an empty folder is fine" "$loco" init --out empty $small

# at_once WHAT TEXT COMMAND... --out: of several calls at once into one folder one wins, and what
# the others say holds TEXT. Left are the winner's files, "race".
at_once() {
    what=$1 text=$2 won=0 lost=0 calls=
    shift 2
    rm -rf race
    for i in 1 2 3 4; do
        "$@" race >race.$i 2>&1 &
        calls="$calls $!"
    done
    for i in $calls; do
        wait $i && won=$((won + 1)) || lost=$((lost + 1))
    done
    [ $won -eq 1 ] && [ "$(cat race.[1-4] | grep -cE "error: $text")" -eq 3 ] &&
        [ "$(cat race.[1-4] | wc -l)" -eq 4 ]
    verdict $? "$what"
}
for round in 1 2 3; do
    at_once "of four calls at once one makes the folder, round $round" \
        "out: race(.tmp is in the way| exists and is not empty)" "$loco" init $small --out
    diff -r race empty >/dev/null && [ ! -e race.tmp ]
    verdict $? "whole"
    at_once "of four calls at once one makes the files, round $round" \
        "(race: another process is writing into|out: race exists and is not empty)" \
        "$loco" data add-noisy --out
    [ "$(cat race/*.jsonl | wc -l)" -eq 14096 ] && [ "$(ls -A race | wc -l)" -eq 3 ]
    verdict $? "whole, too"
done

works "a task" "$loco" data sums --out d
says "it says how much" "d: train.jsonl 65 rows, test.jsonl 16 rows, sft.jsonl 65 rows"
[ "$(sort d/train.jsonl d/test.jsonl | uniq -d | wc -l)" -eq 0 ]
verdict $? "no test prompt is trained on"
works "the same task" "$loco" data sums --out d2
cmp -s d/train.jsonl d2/train.jsonl && cmp -s d/sft.jsonl d2/sft.jsonl
verdict $? "is the same files"
refuses "files that are there" 2 \
    "loco data: error: out: d exists and is not empty; remove it or give another folder" \
    "$loco" data sums --out d
refuses "a folder of something else" 2 \
    "loco data: error: out: empty exists and is not empty; remove it or give another folder" \
    "$loco" data sums --out empty
refuses "a file for a folder" 3 \
    "loco data: error: d/train.jsonl: cannot make this folder: File exists" \
    "$loco" data sums --out d/train.jsonl
finish
