"""Writes tests/golden/schedule.txt: learning-rate factors of transformers' get_scheduler.

usage: schedule_golden.py OUT

One line per run: name, steps, warm-up steps, then the factor of each update.
"""

import sys

import torch
from transformers import get_scheduler

RUNS = [
    ("constant", 5, 0), ("constant_with_warmup", 6, 3), ("linear", 7, 0), ("linear", 12, 5),
    ("linear", 3, 3), ("linear", 4, 6), ("cosine", 11, 0), ("cosine", 13, 4), ("cosine", 1, 0),
]  # fmt: skip


def factors(name, steps, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    for _ in range(steps + 2):  # Past the end too.
        yield schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()


with open(sys.argv[1], "w") as out:
    for run in RUNS:
        print(*run, *(repr(float(x)) for x in factors(*run)), file=out)
