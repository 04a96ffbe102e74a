#!/bin/sh
# loco inspect: every kind of folder and file, and what it says of broken ones.
# usage: inspect.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
cd "$scratch" || exit 1
loco=$(cd "$OLDPWD" && realpath "$loco")
root=$OLDPWD

"$loco" init --out m --hidden_size 32 --num_hidden_layers 1 --num_attention_heads 2 >/dev/null
works "a model folder" "$loco" inspect m
says "its size" "parameters               24800"
says "its tokenizer" "  tokens    256, and 0 merges; ids below 259; 3 added, 3 of them special"
says "its stop ids" "eos token id             258"
says "its weights" "checked                  weights all there, shaped as config.json says, every \
value finite"
works "as JSON" "$loco" inspect m --json
says "the same" '"parameters": 24800, "weights_bytes": 49600,'
works "a foreign model" "$loco" inspect "$root/tests/golden/models/llama_rope3"
says "its rope" "rope type                llama3"

cp -r m mixed
sed -i 's/"vocab_size": 259/"vocab_size": 200/; s/_token_id": 25[68]/_token_id": 1/' mixed/*.json
cut="mixed/tokenizer.json: has ids up to 258, but vocab_size in config.json is 200; the folder \
mixes two models"
refuses "a tokenizer with ids past the vocabulary" 4 "loco inspect: error: $cut" \
    "$loco" inspect mixed
refuses "and no tokenizing with it" 4 "loco tokenize: error: $cut" \
    "$loco" tokenize --model mixed m/config.json
works "but with the file alone" "$loco" tokenize --model mixed/tokenizer.json m/config.json

works "weights" "$loco" inspect m/model.safetensors
says "what is in them" "  model.layers.0.mlp.up_proj.weight               BF16   [128, 32]  8.00 \
KiB"
says "their metadata" "  format  pt"
works "a tokenizer" "$loco" inspect m/tokenizer.json
says "what it is" "kind  tokenizer"
printf '{"prompt": "abc", "n": 1}\n\n{"prompt": "a", "n": null, "x": []}\n' >rows.jsonl
works "rows" "$loco" inspect rows.jsonl
[ "$(cat out)" = 'path  rows.jsonl
kind  JSONL
rows  2
columns
  name    rows  type             mean length  longest
  prompt  2     text             2            3
  n       2     integer or null  null         null
  x       1     list             null         null' ]
verdict $? "what is in them"

{
    printf '{"a": 1}\n{"a": 1, "a": 2}\n{"a": 123456789012345678901}\n{"a": "'
    head -c 16777216 /dev/zero | tr '\0' a
    printf '"}\n{"a": 2, "a": 2}\n{"a\\u0000": 1}\n'
} >rows.jsonl
works "rows that training would drop" "$loco" inspect rows.jsonl
[ "$(cat out)" = 'path  rows.jsonl
kind  JSONL
rows  6
dropped in training
  reason                   rows  first line
  a field given twice      2     2
  a number beyond 64 bits  1     3
  longer than 16 MiB       1     4
  NUL in a field'"'"'s name    1     6
columns
  name  rows  type     mean length  longest
  a     1     integer  null         null' ]
verdict $? "are counted by reason"

refuses "nothing there" 3 "loco inspect: error: nowhere: cannot open: No such file or directory" \
    "$loco" inspect nowhere
mkdir folder && : >folder/a && : >folder/b
refuses "a folder of something else" 4 \
    "loco inspect: error: folder: no model folder (config.json), checkpoint (trainer_state.json) \
or run (metrics.jsonl); it holds a, b" \
    "$loco" inspect folder
refuses "a file of something else" 4 \
    "loco inspect: error: folder/a: expected a .safetensors or .jsonl file, a tokenizer.json, or \
a folder; for a model's files give its folder" \
    "$loco" inspect folder/a
refuses "a part of a model" 4 \
    "loco inspect: error: m/config.json: expected a .safetensors or .jsonl file, a \
tokenizer.json, or a folder; for a model's config.json give its folder" \
    "$loco" inspect m/config.json
printf '{"a": 1}\n{"a": \n' >rows.jsonl
refuses "a bad line" 4 \
    "loco inspect: error: rows.jsonl:2: byte 5: not JSON (unexpected token near end of file): \
mend or remove the line" \
    "$loco" inspect rows.jsonl
finish
