#!/usr/bin/env python3
"""Log-probabilities and gradients of tiny models by transformers and autograd, float32 on CPU.

    model_golden.py MODELS      adds golden.safetensors to each MODELS/NAME/ that make_tiny.py made

A golden file holds, for sequence i = 0, 1, ...:
    seq.i.ids        I32 (n)      tokens
    seq.i.coef       F32 (n)      loss = sum of coef[t] * log-probability of ids[t]; 0 in the prompt
    seq.i.logprobs   F32 (n - 1)  of ids[1:], at `temperature`
    seq.i.entropies  F32 (n - 1)  of the rows that predict ids[1:]
    seq.i.argmax     I32 (n - 1)  most likely token there
and for all sequences together
    temperature      F32 (1)
    spread           F32 (1)      standard deviation of a row's log-probabilities, rms over rows
    grad.NAME        F32          gradient of the sum of the losses by tensor NAME (bf16 values)
Versions: README.md.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

LENGTHS = (5, 33, 64, 90)  # the blocks of 32 keys: inside one, one past, exact, ragged
TEMPERATURE = {"qwen2_untied": 0.7, "qwen3_wide": 1.3}


def sequence(random, vocab, n):
    """Tokens and coefficients: the first quarter is a prompt."""
    ids = torch.randint(0, vocab, (n,), generator=random)
    coef = torch.randn(n, generator=random)
    coef[: max(1, n // 4)] = 0
    return ids, coef


def distribution(model, ids, temperature):
    logits = model(ids[None]).logits[0, :-1] / temperature
    return torch.log_softmax(logits, dim=-1)


def golden(folder, seed):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    random = torch.Generator().manual_seed(seed)
    temperature = TEMPERATURE.get(folder.name, 1.0)
    tensors = {"temperature": torch.tensor([temperature])}
    variances = []
    for i, n in enumerate(LENGTHS):
        ids, coef = sequence(random, model.config.vocab_size, n)
        rows = distribution(model, ids, temperature)
        logprobs = rows.gather(1, ids[1:, None])[:, 0]
        (coef[1:] * logprobs).sum().backward()
        rows = rows.detach()
        variances.append(rows.var(dim=-1))
        tensors |= {
            f"seq.{i}.ids": ids.int(),
            f"seq.{i}.coef": coef,
            f"seq.{i}.logprobs": logprobs.detach(),
            f"seq.{i}.entropies": -(rows.exp() * rows).sum(dim=-1),
            f"seq.{i}.argmax": rows.argmax(dim=-1).int(),
        }
    tensors["spread"] = torch.cat(variances).mean().sqrt()[None]
    tensors |= {f"grad.{name}": w.grad for name, w in model.named_parameters()}
    save_file(tensors, folder / "golden.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)  # one order of summation
    for number, path in enumerate(sorted(pathlib.Path(sys.argv[1]).glob("*/config.json"))):
        golden(path.parent, 200 + number)
