"""Models, gradients and optimizers that test_fsdp.py compares between one rank and several."""

import warnings

import torch
from sharded_worker import weights

import gluon

STEPS = 20


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 4, 6))


class Mixed(torch.nn.Module):
    """Layers of every kind. No number of ranks divides them all, and over four the last ones have nothing of some."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(11, 6)
        self.up = torch.nn.Linear(6, 12)
        self.down = torch.nn.Linear(12, 6)
        self.tiny = torch.nn.Linear(8, 3)
        self.conv = torch.nn.Conv2d(2, 5, 3)
        self.attention = torch.nn.MultiheadAttention(6, 2)  # whose in_proj_weight is split
        self.experts = Experts()
        self.norm = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, 11, bias=False)
        self.to(dtype)


def gradient_of(name, parameter, step):
    generator = torch.Generator().manual_seed(1000 * step + sum(map(ord, name)))
    return torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 10.0 ** (step % 5 - 2)


def take_steps(model, optimizer, steps=STEPS, start=0):
    """With the same gradients for a whole model and for one in shards."""
    for step in range(start, start + steps):
        for name, parameter in model.named_parameters():
            gradient = gradient_of(name, parameter, step)
            if step % 7 == 3 and name == "up.weight":
                gradient = None
            elif hasattr(parameter, "device_mesh"):
                gradient = placed_as(parameter, gradient)
            parameter.grad = gradient
        if step == 5:
            optimizer.param_groups[0]["lr"] *= 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the missing gradient
            optimizer.step()


def with_groups(model):
    """Norms that step on rows, and rules that need the whole matrix."""
    named = dict(model.named_parameters())
    own = {
        "embed.weight": {"norm": "scaled(1/sqrt(n),rows)", "radius": 0.1, "decay": "cautious(0.1,linear(20,20))"},
        "up.weight": {"norm": "max_entry", "radius": 0.01, "ball": 2.0},
        "up.bias": {"norm": "scaled(m,max_entry)", "radius": 0.5},
        "down.weight": {"norm": "columns", "radius": 0.1},
        "conv.weight": {"norm": "rows", "radius": 0.1},
        "tiny.weight": {"norm": "spectral", "radius": "smooth(0,70)"},
        "experts.weight": {"norm": "spectral", "radius": "smooth(0,70)", "split": "rows:2"},
        "head.weight": {"norm": "adamw", "radius": 0.01, "decay": "cautious(0.1)"},
    }
    groups = [{"params": [(name, named.pop(name))], **keys} for name, keys in own.items()]
    return gluon.Gluon([*groups, {"params": list(named.items()), "momentum": 0.5}])


def gluon_with(dtype=torch.float32, **options):
    return dtype, lambda model: gluon.Gluon(model, **options)


CASES = {
    "unscion": gluon_with(),
    "scion": gluon_with(preset="scion"),
    "muon": gluon_with(preset="muon"),
    "adamw": gluon_with(preset="adamw"),
    "sphere": gluon_with(preset="sphere", steps=STEPS),
    "deterministic_gluon": gluon_with(preset="deterministic_gluon"),
    "theorem3": gluon_with(momentum="theorem3"),
    "float64": gluon_with(torch.float64),
    "bfloat16": gluon_with(torch.bfloat16),
    "Muon": (torch.float32, lambda model: gluon.Muon(model.named_parameters(), weight_decay=0.1)),
    "Scion": (torch.float32, lambda model: gluon.Scion(model.named_parameters(), lr=0.1)),
    "groups": (torch.float32, with_groups),
}
RESUMED = ["unscion", "muon", "Scion"]


def run_case(name, shard=lambda model: model, steps=STEPS):
    dtype, make = CASES[name]
    model = Mixed(dtype)
    shard(model)
    optimizer = make(model)
    take_steps(model, optimizer, steps)
    return model, optimizer


def outcome_of(model, optimizer):
    """Weights, state and radii, all whole."""
    state = optimizer.state_dict("names")["state"]
    whole = {name: {kind: whole_of(tensor) for kind, tensor in kinds.items()} for name, kinds in state.items()}
    return {name: whole_of(x) for name, x in weights(model).items()}, whole, optimizer.effective_radii()


def whole_of(tensor):
    if not hasattr(tensor, "full_tensor"):
        return tensor
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # not every Gloo gathers bfloat16
    return wide.full_tensor().to(tensor.dtype)


def placed_as(parameter, tensor):
    """What distribute_tensor() does with a tensor that every rank has, without sending it."""
    from torch.distributed.tensor import DTensor, Shard

    mesh, placements = parameter.device_mesh, parameter.placements
    local = tensor
    if Shard(0) in placements:
        dimension = placements.index(Shard(0))
        chunks = tensor.chunk(mesh.size(dimension))
        rank = mesh.get_local_rank(dimension)
        local = chunks[rank] if rank < len(chunks) else tensor[:0]
    shape, stride = tensor.shape, tensor.stride()
    return DTensor.from_local(local.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)
