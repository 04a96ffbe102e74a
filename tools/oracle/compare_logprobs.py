#!/usr/bin/env python3
"""Compares `loco logprobs --json` with transformers in float32 on the same bf16 weights.

    compare_logprobs.py [--real] MODEL_DIR ROWS.jsonl OURS.jsonl

ROWS: {"ids": [...]} a line, with the reference's "logprobs", "argmax" and "margin" where they are
known already (smollm2.py rows); else they are computed. OURS: the same lines by loco: {"ids",
"logprobs"} and, when it knows, "argmax". Exit status 0 when the verdict is good, else 1.

The verdict on a random model is the bound of docs/NUMERICS.md section 6: rms and largest difference
in terms of the spread of a row's log-probabilities and of the model's attention gain, both measured
on the first rows. With --real it is: perplexity within 0.5 %, the most likely token the same at
97.5 % of the positions, and never another where the reference's leads by more than 0.25 nats.
Versions: README.md.
"""
import argparse
import json
import math
import sys

import torch
from transformers import AutoModelForCausalLM

from logprobs import score

ROUNDING = 1.66e-3  # relative rms error of a bf16
MEASURED_ROWS = 8   # rows that spread and gain are taken from
# The verdict on real models.
PERPLEXITY, AGREEMENT, MARGIN = 0.005, 0.975, 0.25


def relative_error(layers, gain):
    """Of the final normed row, by the recursion of NUMERICS section 6."""
    r = 0.0  # (relative error of the residual stream / ROUNDING)^2
    for j in range(1, 2 * layers, 2):
        r += (2 * gain * r + 4 + 4 * gain) / j
        r += (r + 3) / (j + 1)
    return min(ROUNDING * math.sqrt(r + 1), math.sqrt(2))


def attention_gain(weights):
    """Mean over queries of (variance of scores) * (how far an error of a score moves the output).

    weights (heads, n, n): causal attention probabilities. Query 0 sees one key: no gain."""
    gains = []
    for q in range(1, weights.shape[1]):
        w = weights[:, q, : q + 1]
        scores = w.clamp_min(1e-30).log()  # up to a constant per query
        w2, w3 = (w**2).sum(-1), (w**3).sum(-1)
        gains.append(scores.var(-1) * (1 - 2 * w3 / w2 + w2))
    return torch.stack(gains).mean()


@torch.no_grad()
def measure(model, rows):
    """Spread of a row's log-probabilities (rms of standard deviations) and attention gain."""
    variances, gains = [], []
    for row in rows[:MEASURED_ROWS]:
        out = model(torch.tensor([row["ids"]]), output_attentions=True)
        variances.append(torch.log_softmax(out.logits[0, :-1], dim=-1).var(-1))
        if len(row["ids"]) > 1:
            gains += [attention_gain(layer[0]) for layer in out.attentions]
    return torch.cat(variances).mean().sqrt().item(), torch.stack(gains).mean().item()


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def column(rows, name):
    return torch.tensor([x for row in rows for x in row[name]], dtype=torch.float64)


def random_verdict(model, rows, off):
    spread, gain = measure(model, rows)
    rms = off.square().mean().sqrt().item()
    bound = 2 * spread * relative_error(model.config.num_hidden_layers, gain)
    print(f"spread {spread:.3f} nats, attention gain {gain:.2f}, "
          f"relative error {bound / 2 / spread:.4f}")
    print(f"rms {rms:.3g}, bound {bound:.3g}; max {off.abs().max():.3g}, bound {5 * bound:.3g}")
    return rms <= bound and off.abs().max().item() <= 5 * bound


def real_verdict(want, got):
    perplexity = [math.exp(-column(rows, "logprobs").mean()) for rows in (want, got)]
    change = perplexity[1] / perplexity[0] - 1
    print(f"perplexity {perplexity[0]:.4f} there, {perplexity[1]:.4f} here: {100 * change:+.3f} %")
    other = column(want, "argmax") != column(got, "argmax")
    margin = column(want, "margin")[other]
    agreement = 1 - other.double().mean().item()
    worst = margin.max().item() if len(margin) else 0.0
    print(f"most likely token the same at {100 * agreement:.2f} % of the positions; "
          f"where it is another, the reference's leads by at most {worst:.3f} nats")
    return abs(change) <= PERPLEXITY and agreement >= AGREEMENT and worst <= MARGIN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", action="store_true")
    parser.add_argument("model_dir")
    parser.add_argument("rows")
    parser.add_argument("ours")
    args = parser.parse_args()
    rows, ours = read(args.rows), read(args.ours)
    if [row["ids"] for row in rows] != [row["ids"] for row in ours]:
        sys.exit(f"{args.ours}: not the same token ids, line by line, as {args.rows}")
    model = AutoModelForCausalLM.from_pretrained(
        args.model_dir, dtype=torch.float32, attn_implementation="eager")
    want = [row if "logprobs" in row else score(model, row["ids"]) for row in rows]
    off = column(ours, "logprobs") - column(want, "logprobs")
    print(f"{len(off)} tokens: mean difference {off.mean():+.3g}, "
          f"mean absolute {off.abs().mean():.3g}, max {off.abs().max():.3g} nats")
    good = real_verdict(want, ours) if args.real else random_verdict(model, rows, off)
    print("good" if good else "BAD")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
