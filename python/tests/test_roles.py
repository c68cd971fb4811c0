"""Which role and split a layer has: by module type, name and shape."""

import pytest
import torch
from conftest import Net, train

import gluon


class Attention(torch.nn.Module):
    """A language model whose head is called `out`, with torch's own attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(11, 8)
        self.attn = torch.nn.MultiheadAttention(8, 2)
        self.up = torch.nn.Linear(8, 11 + 5)
        self.out = torch.nn.Linear(8, 11, bias=False)


def groups_of(optimizer):
    return {line.split()[0]: line for line in optimizer.routing_report().splitlines()[1:]}


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon, gluon.Scion])
def test_a_head_is_found_by_its_shape(make):
    model = Attention()
    geometry = [{"role": "head", "norm": "max_entry", "radius": 1}, {"norm": "rows", "radius": 1}]
    report = groups_of(gluon.Gluon(model, geometry=geometry))
    assert report["head"].split()[-2:] == ["1", "88"]
    # Without the types of modules the table is an embedding only by its name.
    named = [(name.replace("words", "embed"), p) for name, p in model.named_parameters()]
    assert "head" in groups_of(gluon.Gluon(named, geometry=geometry))
    hidden = sum(p.numel() for n, p in model.named_parameters() if p.dim() == 2) - 2 * 88
    assert groups_of(make(model))["hidden"].split()[4] == str(hidden)


def test_a_role_that_was_given_beats_the_shape():
    model = Attention()
    geometry = [{"role": "head", "norm": "max_entry"}, {"norm": "rows"}]
    assert "head" not in groups_of(gluon.Gluon(model, geometry=geometry, roles={"out.*": "hidden"}))
    rest = [(n, p) for n, p in model.named_parameters() if n != "out.weight"]
    groups = [{"params": rest}, {"params": [("out.weight", model.out.weight)], "role": "hidden"}]
    assert "head" not in groups_of(gluon.Gluon(groups, geometry=geometry, roles={"words.*": "embedding"}))


def test_a_pattern_that_decides_nothing_is_named():
    with pytest.raises(ValueError, match="roles: no parameter matches 'last.*'"):
        gluon.Gluon(Attention(), roles={"last.*": "head"})
    with pytest.raises(ValueError, match="roles: 'out.weight' decides nothing, because earlier patterns match all that"):
        gluon.Gluon(Attention(), roles={"*.weight": "hidden", "out.weight": "head"})
    gluon.Gluon(Attention(), roles={"out.weight": "head", "up.weight": "hidden", "*.bias": "vector"})


def test_a_head_stays_one_beside_a_frozen_embedding():
    model = Attention()
    model.words.weight.requires_grad_(False)
    geometry = [{"role": "head", "norm": "max_entry"}, {"norm": "rows"}]
    assert "head" in groups_of(gluon.Gluon(model, geometry=geometry))


def test_attention_of_torch_is_split_into_query_key_and_value():
    model = Attention()
    optimizer = gluon.Gluon(model, radius={"hidden": 0.1}, momentum="none", orthogonalizer="svd")
    assert "1 split qkv" in groups_of(optimizer)["hidden"]
    weight = model.attn.in_proj_weight
    start = weight.detach().clone()
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    assert [f"attn.in_proj_weight[{k}]" in optimizer.effective_radii() for k in range(3)] == [True] * 3
    for k in range(3):
        moved = (weight - start)[8 * k : 8 * k + 8] / 0.1
        assert torch.allclose(moved @ moved.T, torch.eye(8), atol=1e-4)
    whole = gluon.Gluon([{"params": [("in_proj_weight", weight)], "split": "rows:1"}])
    assert list(whole.effective_radii()) == ["in_proj_weight"]


def test_a_split_is_not_for_layers_left_to_adamw(model):
    optimizer = gluon.Muon([{"params": list(model.named_parameters()), "split": "rows:2"}])
    train(model, optimizer, 1)
    assert {"up.weight[0]", "up.weight[1]", "embed.weight"} <= set(optimizer.effective_radii())
    with pytest.raises(ValueError, match="AdamW works on entries; it needs no split"):
        gluon.Gluon([{"params": list(model.named_parameters()), "norm": "adamw", "split": "rows:2"}])


def test_models_without_a_second_table_keep_their_roles():
    assert "embedding" in groups_of(gluon.Gluon([(n, p) for n, p in Net().named_parameters() if "head" not in n]))
