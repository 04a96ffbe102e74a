"""Opens a model folder in transformers and compares it with loco: token ids, and log-probabilities
of random ids under the same bf16 weights in float32.

usage: opens.py LOCO FOLDER
"""
import json
import subprocess
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

TEXTS = ["hello", "What is 7 + 5?", "naïve café, 東京 🙂\n", "<|im_end|>", ""]
ROWS, TOKENS = 8, 40


def loco_rows(loco, command, folder, rows, *options):
    done = subprocess.run(
        [loco, command, "--model", folder, *options],
        input="".join(json.dumps(row) + "\n" for row in rows),
        capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(loco, folder):
    config = AutoConfig.from_pretrained(folder)
    raw = json.load(open(folder + "/config.json"))
    raw = raw.get("rope_parameters") or raw
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", getattr(config, "rope_theta", None))
    assert theta == raw["rope_theta"], (theta, raw["rope_theta"])

    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = [tokenizer(text)["input_ids"] for text in TEXTS]
    rows = loco_rows(loco, "tokenize", folder, [{"text": text} for text in TEXTS], "--jsonl")
    ours = [row["ids"] for row in rows]
    assert ours == theirs, (ours, theirs)

    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="eager", output_loading_info=True)
    keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
    assert not any(report[key] for key in keys), report
    assert model.dtype == torch.bfloat16
    model = model.float().eval()

    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(0, config.vocab_size, (ROWS, TOKENS), generator=draw)
    with torch.no_grad():
        logits = torch.log_softmax(model(ids).logits.float(), -1)[:, :-1]
    theirs = logits.gather(-1, ids[:, 1:, None])[..., 0]
    rows = loco_rows(loco, "logprobs", folder, [{"ids": row.tolist()} for row in ids], "--argmax")
    ours = torch.tensor([row["logprobs"] for row in rows])
    best = torch.tensor([row["argmax"] for row in rows])
    apart = (ours - theirs).abs()
    top = logits.topk(2, -1)
    margin = (top.values[..., 0] - top.values[..., 1])[best != top.indices[..., 0]]
    print(f"largest difference {apart.max():.4f}, mean {apart.mean():.5f} nats; spread "
          f"{theirs.std():.2f}; another most likely token at {len(margin)} of {best.numel()}, "
          f"margin there at most {margin.max() if len(margin) else 0:.4f}")
    spread = max(1.0, theirs.std().item())
    assert apart.mean() < 0.02 * spread and apart.max() < 0.25 * spread
    assert len(margin) <= 0.05 * best.numel() and (margin < 0.25).all()


if __name__ == "__main__":
    main(*sys.argv[1:])
