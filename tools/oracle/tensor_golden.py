"""Writes tests/golden/tensor/mixed.safetensors: the reference writer's bytes for test_tensor.

Usage: python tools/oracle/tensor_golden.py tests/golden/tensor
Made with safetensors 0.8.0, torch 2.15.0. No seed: the values are counted up.
"""
import sys

import torch
from safetensors.torch import save_file


def count(n, dtype):
    return torch.arange(n, dtype=torch.float64).to(dtype)


# Insertion order, name order and dtype order all differ; one name needs escapes, one is not ASCII.
tensors = {
    "z.weight": count(6, torch.bfloat16).reshape(2, 3),
    "a.weight": count(6, torch.float16).reshape(3, 2),
    "scalar": torch.tensor(-1.5, dtype=torch.float32),
    "b.bias": count(5, torch.float32),
    "empty": torch.zeros(0, 4, dtype=torch.float32),
    "mask": torch.tensor([True, False, True]),
    "step": torch.tensor([7, 8], dtype=torch.int64),
    "double": count(2, torch.float64),
    "bytes": torch.arange(3, dtype=torch.uint8),
    "short": torch.tensor([-1, 2], dtype=torch.int16),
    'quote"\\\t\u001f': torch.tensor([1], dtype=torch.int32),
    "größe": torch.tensor([2], dtype=torch.int8),
}
save_file(tensors, sys.argv[1] + "/mixed.safetensors", metadata={"format": "pt"})
