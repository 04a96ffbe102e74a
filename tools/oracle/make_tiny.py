#!/usr/bin/env python3
"""Random tiny model folders of the three families, written by transformers itself.

    make_tiny.py OUT        OUT/NAME/{config.json, generation_config.json, model.safetensors}

Shapes are odd on purpose: head width unlike hidden / heads, one KV head, widths that are no
multiple of 32, untied heads, biases, llama3 rope whose bands all occur. Weights are scaled so that
activations stay near 1 and a row's log-probabilities spread by more than a nat, else a comparison
of models would compare uniform distributions. Half of the folders get the config style of
transformers 4 (rope_theta, rope_scaling, torch_dtype), the others keep that of transformers 5
(rope_parameters, dtype). Tokenizers are left out. Versions: README.md.
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from logprobs import spread

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # A real model has 8192; so few that the pairs of a narrow head fall into all three bands.
    "original_max_position_embeddings": 64,
}

# name: (family, config style, fields)
MODELS = {
    "llama_tied": (LlamaConfig, 4, dict(
        vocab_size=97, hidden_size=36, intermediate_size=52, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0})),
    "llama_rope3": (LlamaConfig, 5, dict(
        vocab_size=131, hidden_size=40, intermediate_size=72, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, tie_word_embeddings=False,
        rope_parameters=LLAMA3_ROPE)),
    "llama_rope3_v4": (LlamaConfig, 4, dict(
        vocab_size=113, hidden_size=40, intermediate_size=44, num_attention_heads=2,
        num_key_value_heads=2, head_dim=20, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=LLAMA3_ROPE)),
    "qwen2_bias": (Qwen2Config, 4, dict(
        vocab_size=300, hidden_size=72, intermediate_size=50, num_attention_heads=6,
        num_key_value_heads=2, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "qwen2_untied": (Qwen2Config, 5, dict(
        vocab_size=150, hidden_size=40, intermediate_size=60, num_attention_heads=5,
        num_key_value_heads=1, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen3_wide": (Qwen3Config, 5, dict(
        vocab_size=257, hidden_size=40, intermediate_size=56, num_attention_heads=4,
        num_key_value_heads=1, head_dim=24, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "qwen3_tied": (Qwen3Config, 4, dict(
        vocab_size=200, hidden_size=36, intermediate_size=100, num_attention_heads=2,
        num_key_value_heads=2, head_dim=34, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
}
COMMON = dict(num_hidden_layers=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
              pad_token_id=None, dtype=torch.bfloat16)
LOGIT_SPREAD = 1.8  # standard deviation of a row's logits, nats


@torch.no_grad()
def fill(model, seed):
    """Random weights: products keep the size of their input, norms and biases are not trivial."""
    random = torch.Generator().manual_seed(seed)
    for name, w in model.named_parameters():
        noise = torch.randn(w.shape, generator=random)
        if "norm" in name:
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            value = noise * (LOGIT_SPREAD / model.config.hidden_size**0.5)
        else:
            value = noise / w.shape[1] ** 0.5
        w.copy_(value)


def to_style4(path):
    """Rewrites config.json as transformers 4 writes it."""
    fields = json.loads(path.read_text())
    rope = fields.pop("rope_parameters")
    fields["rope_theta"] = rope.pop("rope_theta")
    fields["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    fields["torch_dtype"] = fields.pop("dtype")
    fields["transformers_version"] = "4.51.0"
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def make(out, name, seed):
    config_class, style, fields = MODELS[name]
    config = config_class(**COMMON, **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill(model, seed)
    folder = pathlib.Path(out, name)
    model.to(torch.bfloat16).save_pretrained(folder)
    if style == 4:
        to_style4(folder / "config.json")
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    least = spread(read, list(range(3, 90)))
    if least < 1:
        sys.exit(f"{name}: a row's log-probabilities spread by only {least:.2f} nats")
    print(f"{name}: {read.num_parameters()} parameters, least spread {least:.2f} nats")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for number, model_name in enumerate(MODELS):
        make(sys.argv[1], model_name, 100 + number)
