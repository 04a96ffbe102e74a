"""TRL's GRPOTrainer on a CPU in float32, to be timed beside `loco train` on the same rows.

    trl_step.py FOLDER ROWS TEMPLATE STEPS PER_DEVICE NEW_TOKENS LEARNING_RATE OUT

ROWS is JSONL with prompt and answer, TEMPLATE a text with {prompt} in it. 8 prompts times 8 samples
a step, beta 0, dapo, constant learning rate, no gradient checkpointing (with it TRL is slower
still). The reward is 1 where the completion's last integer is the answer. Prints a line a step,
then the mean CPU seconds of all steps but the first, which warms up.
"""
import json
import os
import re
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

PROMPTS, SAMPLES = 8, 8


def last_integer_is_answer(completions, answer, **_):
    numbers = [re.findall(r"-?\d+", text) for text in completions]
    return [float(bool(n) and n[-1] == right) for n, right in zip(numbers, answer)]


class Clock(TrainerCallback):
    def __init__(self):
        self.cpu = []

    def on_step_begin(self, args, state, control, **_):
        self.wall_start, self.cpu_start = time.time(), time.process_time()

    def on_step_end(self, args, state, control, **_):
        self.cpu.append(time.process_time() - self.cpu_start)
        print("step %d: %.1f CPU s, %.1f s" % (state.global_step, self.cpu[-1],
                                               time.time() - self.wall_start), flush=True)


def main():
    folder, rows, template, steps, per_device, new_tokens, rate, out = sys.argv[1:]
    per_device = int(per_device)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    data = [json.loads(line) for line in open(rows)]
    data = [
        {"prompt": template.replace("{prompt}", r["prompt"]), "answer": r["answer"]} for r in data
    ]
    config = GRPOConfig(
        output_dir=out, use_cpu=True, bf16=False, per_device_train_batch_size=per_device,
        gradient_accumulation_steps=PROMPTS * SAMPLES // per_device, num_generations=SAMPLES,
        max_completion_length=int(new_tokens), beta=0.0, learning_rate=float(rate),
        lr_scheduler_type="constant", max_steps=int(steps), logging_steps=1, report_to=[],
        save_strategy="no", gradient_checkpointing=False, temperature=1.0, seed=0,
        disable_tqdm=True, dataloader_pin_memory=False)
    clock = Clock()
    trainer = GRPOTrainer(model=model, reward_funcs=last_integer_is_answer, args=config,
                          train_dataset=Dataset.from_list(data), processing_class=tokenizer,
                          callbacks=[clock])
    trainer.train()
    later = clock.cpu[1:] or clock.cpu
    print("mean %.3f" % (sum(later) / len(later)))


main()
