#!/usr/bin/env python3
"""Random models of the three families and odd shapes: `loco logprobs` against transformers.

    models.py LOCO SCRATCH COUNT SEED

Each folder gets its own family, widths, heads, depth, rope, config style, weight type and sharding,
and is judged by the bound of docs/NUMERICS.md section 6. Exit status 0 when all are good.
"""
import json
import pathlib
import random
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

ORACLE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "oracle"
sys.path.insert(0, str(ORACLE))
from make_tiny import LLAMA3_ROPE, fill, to_style4  # noqa: E402


def shape(rng):
    """A family and its config's fields."""
    family = rng.choice([LlamaConfig, Qwen2Config, Qwen3Config])
    kv = rng.choice([1, 1, 2, 3])
    heads = kv * rng.choice([1, 2, 3, 5])
    head_dim = 2 * rng.randint(2, 40)
    rope = {"rope_type": "default", "rope_theta": float(rng.choice([100, 10000, 1000000]))}
    if family is LlamaConfig and rng.random() < 0.4:
        rope = dict(LLAMA3_ROPE, factor=float(rng.choice([4, 8, 32])))
    # The bound speaks of sums of many terms: a stream of 8 is none.
    hidden = heads * (head_dim if family is Qwen2Config else rng.randint(16, 120) // heads + 1)
    fields = dict(
        vocab_size=rng.randint(40, 2500), hidden_size=hidden,
        intermediate_size=rng.randint(9, 260), num_attention_heads=heads,
        num_key_value_heads=kv, num_hidden_layers=rng.randint(1, 4),
        rms_norm_eps=rng.choice([1e-5, 1e-6]), tie_word_embeddings=rng.random() < 0.5,
        max_position_embeddings=512, rope_parameters=rope, bos_token_id=1, eos_token_id=2,
        pad_token_id=None)
    if family is not Qwen2Config:
        fields["head_dim"] = head_dim
    return family, fields


def make(folder, rng, seed):
    family, fields = shape(rng)
    model = AutoModelForCausalLM.from_config(family(**fields), dtype=torch.float32)
    fill(model, seed)
    dtype = rng.choice([torch.bfloat16, torch.bfloat16, torch.float32, torch.float16])
    model.to(torch.bfloat16).to(dtype)  # bf16 values, whatever the file's type
    model.save_pretrained(folder, max_shard_size=rng.choice(["50KB", "5GB"]))
    if rng.random() < 0.5:
        to_style4(folder / "config.json")
    print(f"{folder.name}: {family.__name__} {dtype} {json.dumps(fields)}", flush=True)
    return fields["vocab_size"]


def judge(loco, folder, vocab, rng):
    rows = folder / "rows.jsonl"
    with open(rows, "w", encoding="utf-8") as out:
        for length in [2, 3, 31, 32, 33, 64, 65, 130, 257, 400]:
            ids = [rng.randrange(vocab) for _ in range(length)]
            out.write(json.dumps({"ids": ids}) + "\n")
    ours = folder / "ours.jsonl"
    with open(ours, "w", encoding="utf-8") as out:
        subprocess.run([loco, "logprobs", "--model", folder, "--argmax", "--microbatch_tokens",
                        str(rng.choice([400, 512, 2000])), rows], stdout=out, check=True)
    return subprocess.run([sys.executable, ORACLE / "compare_logprobs.py", folder, rows, ours],
                          check=False).returncode == 0


def main():
    loco, scratch, count, seed = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:5])
    bad = 0
    for number in range(seed, seed + count):
        rng = random.Random(number)
        folder = scratch / f"random-{number}"
        vocab = make(folder, rng, number)
        bad += not judge(loco, folder, vocab, rng)
    print(f"{count} models, {bad} bad")
    sys.exit(bad > 0)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main()
