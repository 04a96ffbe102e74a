"""Writes tests/golden/grpo.txt: GRPO arithmetic as TRL 1.16's own GRPOTrainer does it.

usage: grpo_golden.py OUT

The trainer object is made without a model: its methods `_generate_and_score_completions`
(advantages, masks, reward and length metrics) and `_compute_loss` (loss, clip and KL metrics) run
unchanged, and only what they would ask a model, a tokenizer or other ranks is answered from fixed
numbers. One micro-batch, one process. Log-probabilities are float32 values carried in float64, so
that the file holds no rounding of TRL's; the derivatives come from autograd. Everything is drawn
from the seed below.
"""

import sys
import types
from collections import defaultdict, deque
from itertools import product

import torch
from trl import GRPOTrainer

SEED = 20261201
GROUPS, SAMPLES, LENGTH_MAX = 3, 4, 8
EOS, PAD, WORD = 2, 0, 7


class Accelerator:
    """A single process: gather and reduce are identities."""

    device = torch.device("cpu")
    num_processes, process_index, is_main_process, sync_gradients = 1, 0, True, True

    def gather(self, x):
        return x

    def reduce(self, x, reduction="sum"):
        return x

    gather_for_metrics = gather

    def unwrap_model(self, model, **_):
        return model


class Tokenizer:
    pad_token_id = PAD

    def batch_decode(self, ids, **_):
        return [str(x) for x in ids]


class Trainer(GRPOTrainer):
    """GRPOTrainer with the model's and the sampler's answers given."""

    def __init__(self, case):
        self.case = case
        self.accelerator = Accelerator()
        self.model = types.SimpleNamespace(
            training=True,
            is_gradient_checkpointing=False,
            gradient_checkpointing_disable=lambda: None,
        )
        self.ref_model = "reference"
        self.args = types.SimpleNamespace(
            per_device_train_batch_size=GROUPS * SAMPLES,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
            use_bias_correction_kl=case["kl"] == "k3_ratio",
            delta=None,
            report_to=[],
        )
        self.state = types.SimpleNamespace(num_input_tokens_seen=0, global_step=0)
        self.processing_class = self._tokenizer = Tokenizer()
        self.eos_token_ids = [EOS]
        self.num_generations = self.num_generations_eval = SAMPLES
        self.current_gradient_accumulation_steps = self.num_iterations = 1
        self.beta = case["beta"]
        self.loss_type = case["loss_type"]
        self.epsilon_low, self.epsilon_high = case["epsilon_low"], case["epsilon_high"]
        self.scale_rewards = case["scale_rewards"]
        self.mask_truncated_completions = case["mask_truncated"]
        self.max_completion_length = LENGTH_MAX
        self.multi_objective_aggregation = "sum_then_normalize"
        self.reward_weights = torch.tensor(case["weights"], dtype=torch.float64)
        self.reward_funcs = self.reward_func_names = [f"r{k}" for k in range(len(case["weights"]))]
        self.importance_sampling_level, self.top_entropy_quantile = "token", 1.0
        self.off_policy_mask_threshold = self.rollout_func = self.environment_factories = None
        self.environments = self.tools = self.pad_to_multiple_of = None
        self.use_vllm = self.vllm_importance_sampling_correction = False
        self.aux_loss_enabled = self._entropy_bonus_enabled = False
        self.log_multimodal = self._is_vlm = False
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._logs = defaultdict(lambda: deque())
        self._logs["rewards"], self._logs["extra"] = defaultdict(deque), defaultdict(deque)
        self._pending_extra_logs, self._pending_metrics = {}, {}

    def _tokenize_prompts(self, prompts):
        return [[WORD, WORD, WORD] for _ in prompts], None, {}

    def _generate_single_turn(self, *_):
        return self.case["completion_ids"], None

    def _calculate_rewards(self, *_):
        return self.case["rewards"]

    def _get_per_token_logps_and_entropies(self, model, *_, **__):
        if model == "reference":
            return self.case["logp_ref"], None, None
        return self.case["logp"], self.case["entropy"], None


def as_float32(x):
    return x.to(torch.float32).to(torch.float64)


def draw(case, g):
    """A case's numbers: completions, rewards, and log-probabilities padded to (B, LENGTH_MAX)."""
    n = GROUPS * SAMPLES
    lengths = torch.randint(1, LENGTH_MAX + 1, (n,), generator=g)
    lengths[0] = LENGTH_MAX  # One row is full, so padding never shrinks the tensors.
    truncated = torch.rand(n, generator=g) < 0.3
    case["completion_ids"] = [
        [WORD] * (int(k) - 1) + [WORD if cut else EOS]
        for k, cut in zip(lengths, truncated, strict=True)
    ]
    case["lengths"], case["truncated"] = lengths, truncated
    rewards = torch.randint(0, 2, (n, len(case["weights"])), generator=g).to(torch.float64)
    rewards[:, -1] = rewards[:, -1] * 0.75 + 0.1
    rewards[0:SAMPLES] = rewards[0]  # A group of equal rewards (see `level`, its last value).
    rewards[0:SAMPLES, -1] = case["level"]
    if case["unscored"]:
        rewards[SAMPLES + 1] = torch.nan  # No reward at all: no advantage.
        rewards[2 * SAMPLES, 0] = torch.nan  # One of several missing.
    case["rewards"] = rewards
    normal = lambda: torch.randn((n, LENGTH_MAX), generator=g, dtype=torch.float64)
    old = as_float32(-normal().abs() * 2 - 0.01)
    case["logp"] = as_float32(old + case["drift"] * normal()).requires_grad_()
    case["logp_old"] = old
    case["logp_ref"] = as_float32(case["logp"].detach() + 0.3 * normal())
    case["entropy"] = as_float32(normal().abs())


def run(case):
    trainer = Trainer(case)
    inputs = trainer._generate_and_score_completions([{"prompt": "x"}] * (GROUPS * SAMPLES))
    if case["drift"] > 0:
        inputs["old_per_token_logps"] = case["logp_old"]
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    metrics = {k: v[-1] for k, v in trainer._metrics["train"].items() if k != "num_tokens"}
    return loss.item(), case["logp"].grad, inputs["advantages"], metrics


def numbers(x):
    return " ".join(f"{float(v):.9g}" for v in x)


def write(out, case):
    loss, dlogp, advantages, metrics = run(case)
    print("case", case["name"], file=out)
    for key in ("loss_type", "scale_rewards", "kl"):
        print(key, case[key], file=out)
    for key in ("beta", "epsilon_low", "epsilon_high"):
        print(key, repr(case[key]), file=out)
    print("mask_truncated", int(case["mask_truncated"]), file=out)
    print("weights", numbers(case["weights"]), file=out)
    for i, n in enumerate(case["lengths"].tolist()):
        print("sample", n, int(case["truncated"][i]), file=out)
        print("rewards", numbers(case["rewards"][i]), file=out)
        print("logp", numbers(case["logp"].detach()[i, :n]), file=out)
        old = case["logp_old"] if case["drift"] > 0 else case["logp"].detach()
        print("old", numbers(old[i, :n]), file=out)
        print("ref", numbers(case["logp_ref"][i, :n]), file=out)
        print("entropy", numbers(case["entropy"][i, :n]), file=out)
        print("dlogp", numbers(dlogp[i, :n]), file=out)
        print("advantage", repr(advantages[i].item()), file=out)
    print("loss", repr(loss), file=out)
    for key, value in sorted(metrics.items()):
        print("metric", key, repr(float(value)), file=out)
    print("end", file=out)


def cases():
    plain = dict(
        scale_rewards="group", kl="none", beta=0.0, epsilon_low=0.2, epsilon_high=0.2,
        mask_truncated=False, weights=[1.0], drift=0.25, level=0.1, unscored=False,
    )  # fmt: skip
    for loss_type, kl in product(("grpo", "dapo", "dr_grpo", "bnpo"), ("none", "k3", "k3_ratio")):
        base = plain | dict(loss_type=loss_type, kl=kl, beta=0.0 if kl == "none" else 0.04)
        yield base | dict(name=f"{loss_type}_{kl}")
        yield base | dict(
            name=f"{loss_type}_{kl}_masked", mask_truncated=True, epsilon_low=0.15,
            epsilon_high=0.28, scale_rewards="none", weights=[1.0, 0.3], level=0.85,
        )  # fmt: skip
    yield plain | dict(name="on_policy", loss_type="dapo", kl="k3_ratio", beta=0.1, drift=0.0)
    yield plain | dict(name="unscored", loss_type="grpo", weights=[1.0, 0.5], unscored=True)


def main():
    generator = torch.Generator().manual_seed(SEED)
    with open(sys.argv[1], "w") as out:
        print(f"# made by tools/oracle/grpo_golden.py, TRL 1.16, seed {SEED}", file=out)
        print(f"shape {GROUPS} {SAMPLES} {LENGTH_MAX}", file=out)
        for case in cases():
            draw(case, generator)
            write(out, case)


if __name__ == "__main__":
    main()
