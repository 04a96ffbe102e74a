"""Float32 log-probabilities of given tokens, with what a comparison of two models needs."""
import torch


@torch.no_grad()
def score(model, ids):
    """Of ids[1:]: log-probability, most likely token, and by how much it leads (nats)."""
    logits = model(torch.tensor([ids])).logits[0, :-1].float()
    logprobs = torch.log_softmax(logits, dim=-1)
    of_target = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    best = logprobs.topk(2, dim=-1)
    return {
        "ids": ids,
        "logprobs": of_target.tolist(),
        "argmax": best.indices[:, 0].tolist(),
        "margin": (best.values[:, 0] - best.values[:, 1]).tolist(),
    }


@torch.no_grad()
def spread(model, ids):
    """The least standard deviation, over rows, of a row's log-probabilities (nats)."""
    logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits, dim=-1).std(dim=-1).min().item()
