"""QK-clip against an implementation of its own, and the recipes of docs/python.md."""

import math
import pathlib
import re

import pytest
import torch

import gluon

GUIDE = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()
HEADS, DIMENSION, WIDTH, TAU = 2, 4, 8, 1.5


class Attention(torch.nn.Module):
    """Queries, keys and values of one weight, and the largest logit of each head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv = torch.nn.Linear(WIDTH, 3 * HEADS * DIMENSION, bias=False)
        self.max_logits = torch.full((HEADS,), -math.inf, dtype=torch.float64)

    def heads(self, x):
        return (y.unflatten(-1, (HEADS, DIMENSION)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))

    def scores(self, x):
        q, k, _ = self.heads(x)
        return q @ k.transpose(-1, -2) / math.sqrt(DIMENSION)


def attend_to_first(scores):
    return -scores.log_softmax(-1)[..., 0].mean()


def largest(scores):
    """Largest entry of each head, by loops."""
    return [max(scores[b][h].max().item() for b in range(len(scores))) for h in range(HEADS)]


def batch(step):
    return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def make():
    model = Attention().double()  # training amplifies the rounding of float32
    return model, gluon.Gluon(model.named_parameters(), preset="muon", radius={"hidden": 0.3})


def train_step(model, optimizer, step):
    optimizer.zero_grad()
    scores = model.scores(batch(step))
    attend_to_first(scores).backward()
    optimizer.step()
    return scores.detach()


def test_agrees_with_an_independent_implementation_over_20_steps():
    (ours, one), (theirs, two), (free, three) = make(), make(), make()
    unclipped = 0
    for step in range(20):
        gamma = gluon.qk_clip(*ours.qkv.weight.chunk(3)[:2], train_step(ours, one, step).amax((0, 2, 3)), tau=TAU)
        for head, logit in enumerate(largest(train_step(theirs, two, step))):
            assert gamma[head].item() == pytest.approx(min(1, TAU / logit), rel=1e-6)
            if logit > TAU:
                with torch.no_grad():
                    for part in (0, 1):
                        start = (part * HEADS + head) * DIMENSION
                        theirs.qkv.weight[start : start + DIMENSION] *= math.sqrt(TAU / logit)
        unclipped = max(unclipped, *largest(train_step(free, three, step)))
        assert torch.allclose(ours.qkv.weight, theirs.qkv.weight, atol=1e-8)
    assert unclipped > 5 * TAU


def guide():
    section = GUIDE.split("\n## QK-clip\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_the_guides_lines_keep_the_largest_logits_and_clip():
    scores_lines, step_lines, _ = guide()
    (ours, one), (twin, two) = make(), make()
    clips = 0
    for step in range(10):
        one.zero_grad()
        two.zero_grad()
        seen = []
        for part in range(2):  # two batches of one step
            q, k, _ = ours.heads(batch(2 * step + part))
            names = {"q": q, "k": k, "d": DIMENSION, "self": ours, "math": math, "torch": torch}
            exec(scores_lines, names)
            attend_to_first(names["scores"]).backward()
            seen.append(twin.scores(batch(2 * step + part)))
            attend_to_first(seen[-1]).backward()
        step_names = {"optimizer": one, "attention_layers": [ours], "math": math, "gluon": gluon}
        exec(step_lines.replace("tau=100", f"tau={TAU}"), step_names)
        two.step()
        query, key, _ = twin.qkv.weight.chunk(3)
        clips += (gluon.qk_clip(query, key, torch.cat(seen).detach().amax((0, 2, 3)), tau=TAU) < 1).sum().item()
        assert torch.equal(ours.qkv.weight, twin.qkv.weight) and torch.isinf(ours.max_logits).all()
    assert clips > 5


def test_the_guides_hooks_give_a_bound():
    heads, d = HEADS, DIMENSION
    layer = torch.nn.Module()
    layer.q_proj, layer.k_proj = (torch.nn.Linear(WIDTH, heads * d, bias=False).double() for _ in range(2))
    names = {"layer": layer, "longest": {}, "heads": heads, "d": d, "math": math, "gluon": gluon}
    register, clip = guide()[2].split("...\n")
    exec(register, names)

    def logits():
        q, k = (p(batch(0)).unflatten(-1, (heads, d)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj))
        return (q @ k.transpose(-1, -2) / math.sqrt(d)).amax((0, 2, 3))

    exact = logits()
    assert (names["longest"]["q"] * names["longest"]["k"] / math.sqrt(d) >= exact).all()
    exec(clip.rstrip()[:-1] + ", tau=0.1)", names)
    assert (exact > 0.1).any() and (logits() <= 0.1 + 1e-9).all()


def test_by_hand_and_shared_key_heads():
    query, key = torch.full((4, 3), 8.0), torch.full((2, 3), 6.0)
    assert gluon.qk_clip(query, key, torch.tensor([400.0, math.nan])).isnan().tolist() == [False, True]
    assert query[:, 0].tolist() == [2, 2, 8, 8] and key.unique().tolist() == [6]
    query, key = torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.bfloat16)
    gluon.qk_clip(query, key, torch.tensor([16.0]), tau=1, alpha=1)
    assert query.unique().tolist() == [0.0625] and key.unique().tolist() == [1]


def test_bad_input_is_named():
    weight = torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"qk_clip: tau must be in 1e-30..1e\+30, got -1"):
        gluon.qk_clip(weight, weight, torch.ones(2), tau=-1)
    with pytest.raises(ValueError, match="qk_clip: expected a multiple of 3 heads as rows of query, got 4"):
        gluon.qk_clip(weight, weight, torch.ones(3))
