#!/usr/bin/env python3
"""Three steps of torch.optim.AdamW on small float32 arrays.

    adamw_golden.py OUT.safetensors

    param.0          F32 (n)  start; param.1 .. param.3 after each step
    grad.1 .. grad.3 F32 (n)  gradient of each step, before `factor`
    m.i, v.i         F32 (n)  moments after step i
    hyper            F32 (5)  beta1, beta2, eps, weight decay, factor
    lr               F32 (3)  learning rate of each step
`plain.` arrays have no weight decay. AdamW is given grad * factor, as clipping makes it.
Versions: README.md.
"""
import sys

import torch
from safetensors.torch import save_file

N = 77  # no multiple of a vector
BETAS, EPS, DECAY, FACTOR = (0.9, 0.95), 1e-6, 0.1, 0.37
RATES = (1e-2, 5e-3, 2e-3)


def steps(start, grads, decay):
    """Tensors of the run from `start` with that weight decay."""
    w = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([w], lr=RATES[0], betas=BETAS, eps=EPS, weight_decay=decay)
    found = {}
    for i, (grad, rate) in enumerate(zip(grads, RATES), start=1):
        optimizer.param_groups[0]["lr"] = rate
        w.grad = grad * FACTOR
        optimizer.step()
        state = optimizer.state[w]
        found |= {f"param.{i}": w.detach().clone(), f"m.{i}": state["exp_avg"].clone(),
                  f"v.{i}": state["exp_avg_sq"].clone()}
    return found


def main(out):
    random = torch.Generator().manual_seed(300)
    start = torch.randn(N, generator=random)
    # Sizes from far above eps to far below, and a few exact zeros.
    scale = 10.0 ** torch.linspace(-9, 1, N)
    grads = [torch.randn(N, generator=random) * scale for _ in RATES]
    for grad in grads:
        grad[::10] = 0
    tensors = {
        "param.0": start,
        "hyper": torch.tensor([*BETAS, EPS, DECAY, FACTOR]),
        "lr": torch.tensor(RATES),
    }
    tensors |= {f"grad.{i}": grad for i, grad in enumerate(grads, start=1)}
    tensors |= steps(start, grads, DECAY)
    tensors |= {f"plain.{name}": x for name, x in steps(start, grads, 0.0).items()}
    save_file(tensors, out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
