#!/bin/sh
# Model folders that cannot be used: one message each, that names file, place and remedy.
# usage: models.sh PATH-OF-LOCO, from the repository root
loco=$1
. tests/shell.sh
cd "$scratch" || exit 1
loco=$(cd "$OLDPWD" && realpath "$loco")
damaged="the file is damaged, fetch or write it again"
"$loco" init --out m --hidden_size 32 --num_hidden_layers 1 --num_attention_heads 2 >/dev/null

# weights FILE HEADER BYTES: a safetensors file with that many zero bytes of data.
weights() {
    n=${#2}
    {
        printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\\0\\0\\0\\0\\0\\0%s" "$2"
        head -c "$3" /dev/zero
    } >"$1"
}

# file WHAT HEADER BYTES TEXT: a file that is refused.
file() {
    weights w.safetensors "$2" $3
    refuses "$1" 4 "loco inspect: error: w.safetensors: $4" "$loco" inspect w.safetensors
}
w='"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
v='"v": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}'
weights good.safetensors "{$v, $w}" 16
works "keys in any order are fine" "$loco" inspect good.safetensors
head -c 5 good.safetensors >w.safetensors
refuses "a file without a header" 4 \
    "loco inspect: error: w.safetensors: 5 bytes, expected at least 8 and a header: $damaged" \
    "$loco" inspect w.safetensors
head -c 40 good.safetensors >w.safetensors
refuses "a header cut short" 4 \
    "loco inspect: error: w.safetensors: the header takes 123 bytes, but only 32 follow its \
length: $damaged" \
    "$loco" inspect w.safetensors
file "data cut short" "{$w}" 4 \
    "tensor 'w': data_offsets [0, 8] reach past the file's 4 bytes of data: $damaged"
file "tensors that overlap" \
    "{$w, \"v\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}" 12 \
    "tensor 'v': its data begins at 4, inside the data before it, which ends at 8: $damaged"
file "a shape that overflows" \
    '{"w": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}}' 8 \
    "tensor 'w': the size of its shape exceeds 64 bits: $damaged"
file "a tensor listed twice" "{$w, $w}" 8 "tensor 'w': the header lists it twice: $damaged"
printf '\377\377\377\377\377\377\377\377{}' >w.safetensors
refuses "a header's length that overflows" 4 \
    "loco inspect: error: w.safetensors: the first 8 bytes give a header of 18446744073709551615 \
bytes, at most 100000000 are allowed: this is not a safetensors file" \
    "$loco" inspect w.safetensors

# changed SCRIPT FILE...: the folder c, a copy of m with sed's script applied to its files.
changed() {
    rm -rf c
    cp -r m c
    script=$1
    shift
    for name; do
        sed -i "$script" c/$name
    done
}
# folder WHAT STATUS TEXT: the folder c is refused.
folder() {
    refuses "$1" $2 "loco generate: error: $3" "$loco" generate --model c --prompt x
}
changed 's/"hidden_size": 32/"hidden_size": 64/' config.json
folder "shapes that disagree" 4 \
    "c/model.safetensors: tensor 'model.embed_tokens.weight' has shape [259, 32], expected [259, \
64]: the weights do not belong to this configuration"
changed 's/"vocab_size": 259/"vocab_size": 258/; s/_token_id": 258/_token_id": 1/' config.json \
    generation_config.json
folder "a tokenizer with ids past the vocabulary" 4 \
    "c/tokenizer.json: has ids up to 258, but vocab_size in config.json is 258; the folder mixes \
two models"
changed 's/"use_sliding_window": false/"use_sliding_window": true/' config.json
folder "sliding windows" 5 \
    "c/config.json: use_sliding_window = true is not supported; LoCo would compute something else"
changed 's/"silu"/"gelu"/' config.json
folder "another activation" 5 "c/config.json: hidden_act 'gelu' is not supported; expected silu"
changed 's/"rope_scaling": null/"rope_scaling": {"rope_type": "yarn", "factor": 4}/' config.json
folder "another rope" 5 \
    "c/config.json: rope_scaling: rope type 'yarn' is not supported; expected default or llama3"
changed 's/"use_cache": true/"num_experts": 8/' config.json
folder "a mixture of experts" 5 \
    "c/config.json: num_experts = 8 is not supported; LoCo would compute something else"
changed 's/"use_cache": true/"quantization_config": {"bits": 4}/' config.json
folder "quantised weights" 5 \
    "c/config.json: quantization_config is not supported; give a model without it"
changed 's/"qwen3"/"mamba"/' config.json
folder "another family" 5 \
    "c/config.json: model_type 'mamba' is not supported; LoCo trains llama, qwen2 and qwen3"
changed 's/"use_cache": true,/"use_cache": true/' config.json
folder "a configuration that is not JSON" 4 \
    "c/config.json:21: not valid JSON: '}' expected near '\"vocab_size\"'"
changed 's/"ByteLevel"/"Metaspace"/' tokenizer.json
folder "an unknown part of a tokenizer" 5 \
    "c/tokenizer.json: pre_tokenizer.type: 'Metaspace' is not supported; LoCo reads the \
byte-level BPE of Qwen2, Llama-3, SmolLM2 and GPT-2"
changed '' config.json
rm c/tokenizer.json
folder "no tokenizer" 3 \
    "c: has no tokenizer.json; save its tokenizer with transformers, which writes one"
rm c/config.json
folder "no configuration" 3 \
    "c/config.json: not found; expected a Hugging Face model folder with config.json, \
*.safetensors and tokenizer.json"
changed '' config.json
printf '\300\177' | dd of=c/model.safetensors bs=1 conv=notrunc \
    seek=$(($(wc -c <c/model.safetensors) - 2)) 2>/dev/null
folder "NaN in the weights" 9 \
    "c/model.safetensors: tensor 'model.norm.weight' is NaN or infinite at element 31: these \
weights cannot be used, fetch them again or go back to an older checkpoint"
mv c/model.safetensors shard.safetensors
folder "no weights" 3 \
    "c: neither model.safetensors nor model.safetensors.index.json is in this folder: give a \
Hugging Face model folder with safetensors weights"
echo '{"metadata": {}, "weight_map": {"model.norm.weight": "gone.safetensors"}}' \
    >c/model.safetensors.index.json
folder "a shard that is not there" 3 \
    "c: shard 'gone.safetensors' is named in model.safetensors.index.json but is not there: fetch \
it into this folder"
echo '{"metadata": {}, "weight_map": {"model.norm.weight": "../shard.safetensors"}}' \
    >c/model.safetensors.index.json
folder "a shard outside the folder" 4 \
    "c/model.safetensors.index.json: tensor 'model.norm.weight': shard '../shard.safetensors' is \
not a plain file name: shards lie in the index's own folder"
finish
