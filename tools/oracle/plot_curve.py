"""The reward of one or more runs over their steps, as a PNG for the docs.

    plot_curve.py OUT.png TITLE LABEL=METRICS.jsonl ...
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

out, title, runs = sys.argv[1], sys.argv[2], [a.rsplit("=", 1) for a in sys.argv[3:]]
figure, axes = plt.subplots(figsize=(7, 3.2), dpi=120)
for label, path in runs:
    rows = [json.loads(line) for line in open(path)]
    rows = [r for r in rows if r.get("reward") is not None]
    axes.plot([r["step"] for r in rows], [r["reward"] for r in rows], label=label)
axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1), title=title)
axes.grid(alpha=0.3)
axes.legend()
figure.tight_layout()
figure.savefig(out)
