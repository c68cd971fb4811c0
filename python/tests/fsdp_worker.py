"""What the ranks of test_fsdp.py do, and the program of one rank. Arguments: rank, ranks, folder.

Functions import torch.distributed's parts themselves, because torch 1.13 lacks some of them.
"""

import contextlib
import copy
import datetime
import functools
import io
import pathlib
import pickle
import re
import sys
import unittest.mock

import torch
import torch.distributed as dist
from conftest import Net, train
from fsdp_cases import (
    CASES, RESUMED, STEPS, Experts, Mixed, gradient_of, outcome_of, placed_as, run_case, take_steps, whole_of,
)  # fmt: skip
from sharded_worker import message, weights

import gluon

SAVED = 10  # the step after which a run is saved
# Without it fully_shard() runs no model on CPUs, as in torch 2.6; the gradients are then our own alone.
FORWARD = hasattr(getattr(getattr(torch, "cpu", None), "Stream", None), "record_event")


def over(mesh):
    from torch.distributed.fsdp import fully_shard

    def shard(model):
        fully_shard(model.embed, mesh=mesh)
        fully_shard(model, mesh=mesh)

    return shard


def replicated_over(mesh):
    """Some parameters replicated, some plain, the others in shards."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def shard(model):
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if module is not model.up:
                    placement = Replicate() if module is model.down else Shard(0)
                    module.register_parameter(
                        name, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, [placement]))
                    )

    return shard


def trained_net(shard=lambda model: None, device="cpu"):
    """A model trained by its own gradients, every rank with the same batch."""
    model = Net(dtype=torch.float64).to(device)
    shard(model)
    optimizer = gluon.Gluon(model)
    train(model, optimizer, 5)
    return {name: whole_of(x) for name, x in weights(model).items()}


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))


def saved(shard, folder):
    """Saves runs halfway, each step of which was also looked at."""
    import torch.distributed.checkpoint as dcp

    for name in RESUMED:
        model, optimizer = run_case(name, shard, 0)
        for step in range(SAVED):
            state_of(model, optimizer)
            take_steps(model, optimizer, 1, step)
            for parameter in model.parameters():
                parameter.grad = None
        dcp.save(state_of(model, optimizer), checkpoint_id=f"{folder}/{name}")


def resumed(shard, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict

    results = {}
    starts = {name: functools.partial(run_case, name, shard, 0) for name in RESUMED}
    starts["older"] = functools.partial(older_than_its_shards, "muon", shard, 0)
    for name, start in starts.items():
        model, optimizer = start()
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=f"{folder}/{'muon' if name == 'older' else name}")
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        steps = optimizer.steps_taken
        take_steps(model, optimizer, STEPS - SAVED, SAVED)
        results[name] = (steps, *outcome_of(model, optimizer))
    return results


def from_whole_state(shard, folder, rank):
    """Collects a run on rank 0, which saves it and sends it to another model."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions, get_state_dict, set_model_state_dict, set_optimizer_state_dict,
    )  # fmt: skip

    model, optimizer = run_case("Muon", shard, SAVED)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole_weights, state = get_state_dict(model, optimizer, options=options)
    if rank == 0:
        torch.save((whole_weights, state), f"{folder}/whole.pt")
    model, optimizer = run_case("Muon", shard, 0)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, whole_weights, options=options)
    set_optimizer_state_dict(model, optimizer, state, options=options)
    take_steps(model, optimizer, STEPS - SAVED, SAVED)
    return outcome_of(model, optimizer)


class Apart(torch.nn.Module):
    """Layers that need no other rank."""

    def __init__(self):
        super().__init__()
        self.embed, self.experts, self.norm = torch.nn.Embedding(11, 6), Experts(), torch.nn.LayerNorm(6)


def messages_sent(shard):
    """Exchanges in three steps, by torch.distributed's function."""
    sent = {}
    for kind in (Mixed, Apart):
        model = kind()
        shard(model)
        optimizer = gluon.Gluon(model, preset="muon")
        with contextlib.ExitStack() as stack:
            counted = {}
            for name in ("all_to_all_single", "all_reduce", "broadcast", "reduce"):
                function = getattr(dist, name)
                counted[name] = stack.enter_context(unittest.mock.patch.object(dist, name, side_effect=function))
            take_steps(model, optimizer, 3)
            sent[kind.__name__] = {name: mock.call_count for name, mock in counted.items() if mock.call_count}
    return sent


def in_small_windows(shard):
    """Layers are sent a few at a time."""
    with unittest.mock.patch.object(gluon.sharded, "WINDOW_BYTES", 500):
        return messages_sent(shard)["Mixed"]["all_to_all_single"], outcome_of(*run_case("unscion", shard))


def live_state(shard):
    """Momentum is placed as its parameter, and has no whole copy on any rank."""
    model, optimizer = run_case("muon", shard, 2)
    entries = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for kind, tensor in entries[name].items():
            if kind != "step":
                assert tensor.placements == parameter.placements and tensor.shape == parameter.shape, (name, kind)
                assert tensor.to_local().shape == parameter.to_local().shape, (name, kind)
    return optimizer.state_bytes(), {name: list(kinds) for name, kinds in entries.items()}


def states_of_one_rank(shard, folder):
    """A state of one rank, loaded by all."""
    whole_weights, state = torch.load(f"{folder}/single.pt")
    model, optimizer = run_case("unscion", shard, 0)
    optimizer.load_state_dict(state)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(placed_as(parameter, whole_weights[name]))
    take_steps(model, optimizer, STEPS - SAVED, SAVED)
    return outcome_of(model, optimizer)


def changes(shard):
    """A parameter that is edited between steps, and groups that change."""
    model, optimizer = run_case("unscion", shard, 2)
    with torch.no_grad():
        model.down.weight.mul_(0.5)
    take_steps(model, optimizer, 2, 2)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    take_steps(model, optimizer, 2, 4)
    return outcome_of(model, optimizer)


def run_guide(mesh, folder):
    """The lines of docs/python.md."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList(torch.nn.Linear(6, 4) for _ in range(2))
    names = {"model": model, "gluon": gluon, "dcp": dcp, "get_state_dict": get_state_dict, "folder": f"{folder}/guide"}
    names["fully_shard"] = functools.partial(fully_shard, mesh=mesh)
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    for code in re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE):
        if "fully_shard" in code or "dcp" in code:
            exec(code, names)
    return names["optimizer"].routing_report()


def errors(mesh, shard, rank):
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    def with_placement(*placements, mesh=mesh):
        return [("w", torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, placements)))]

    ranks = mesh.size()
    sharded = with_placement(Shard(0))
    reverse = DeviceMesh("cpu", list(reversed(range(ranks))))
    rows = ranks * (ranks + 1) // 2
    uneven = DTensor.from_local(
        torch.ones(1 + rank, 2), mesh, [Shard(0)], run_check=False, shape=torch.Size((rows, 2)), stride=(2, 1)
    )
    partial = DTensor.from_local(torch.ones(4, 4), mesh, [Partial()], run_check=False)
    both = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("data", "model"))
    messages = {
        "columns": message(lambda: gluon.Gluon(with_placement(Shard(1)))),
        "twice": message(lambda: gluon.Gluon(with_placement(Shard(0), Shard(0), mesh=both))),
        "tensor_parallel": message(lambda: gluon.Gluon(with_placement(Shard(0), Shard(1), mesh=both))),
        "partial": message(lambda: gluon.Gluon([("w", torch.nn.Parameter(partial))])),
        "other_mesh": message(lambda: gluon.Gluon([*sharded, ("v", with_placement(Shard(0), mesh=reverse)[0][1])])),
        "descending": message(lambda: gluon.Gluon(with_placement(Shard(0), mesh=reverse))),
        "uneven": message(lambda: gluon.Gluon([("w", torch.nn.Parameter(uneven))])),
        "process_group": message(lambda: gluon.Gluon(sharded, process_group=dist.group.WORLD)),
        "clip": message(lambda: gluon.Gluon(sharded, preset="adamw", adamw_clip=1.0)),
        "normalize": message(lambda: gluon.Gluon(sharded, preset="normuon")),
        "other_option": message(lambda: gluon.Gluon(sharded, momentum=0.9 if rank else 0.8)),
    }
    optimizer = gluon.Gluon(sharded, preset="muon", non_finite="error")
    parameter = sharded[0][1]
    local = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    parameter.grad = local
    optimizer.step()
    start = parameter.to_local().clone()
    if rank == 1:
        local.to_local()[-1, -1] = float("nan")
    messages["nan"] = message(optimizer.step)
    skipping = gluon.Gluon(sharded, non_finite="skip")
    messages["skip"] = message(skipping.step)
    messages["skipped"] = (skipping.steps_skipped, skipping.steps_taken, torch.equal(start, parameter.to_local()))
    parameter.grad = distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)])
    messages["gradient"] = message(optimizer.step)
    state = optimizer.state_dict("names")
    misplaced, unknown, missing = (copy.deepcopy(state) for _ in range(3))
    misplaced["state"]["w"]["momentum"] = distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)])
    unknown["state"]["w"]["velocity"] = torch.ones(4, 4)
    del missing["state"]["w"]["momentum"]
    for case, action in {
        "deepcopy": lambda: copy.deepcopy(optimizer),
        "pickle": lambda: pickle.dumps(optimizer),
        "save": lambda: torch.save(optimizer, io.BytesIO()),
        "recorder": lambda: gluon.SmoothnessRecorder(optimizer),
        "observer": lambda: optimizer.add_observer(None),
        "initialize": optimizer.initialize,
        "start_on_spheres": optimizer.start_on_spheres,
        "misplaced": lambda: optimizer.load_state_dict(misplaced),
        "unknown": lambda: optimizer.load_state_dict(unknown),
        "missing": lambda: optimizer.load_state_dict(missing),
        "whole": lambda: gluon.Gluon([("w", torch.nn.Parameter(torch.ones(4, 4)))]).load_state_dict(state),
    }.items():
        messages[case] = message(action)
    return {**messages, **swapped(shard)}


def swapped(shard):
    """The model is sharded after the optimizer was made."""
    messages = {}
    ways = {"swapped": lambda model: model, "swapped_names": lambda model: model.named_parameters()}
    for case, params in ways.items():
        model = Net()
        optimizer = gluon.Gluon(params(model))
        shard(model)
        for name, parameter in model.named_parameters():
            parameter.grad = placed_as(parameter, gradient_of(name, parameter, 0))
        messages[case] = message(optimizer.step)
    optimizer = gluon.Gluon(model)
    optimizer.param_groups[0]["params"] = list(Net().parameters())
    messages["replaced"] = message(optimizer.step)
    return messages


def older_than_its_shards(name, shard, steps):
    """As Accelerate's prepare() does: the optimizer gets the shards in its groups, here after some steps."""
    model, optimizer = run_case(name, steps=steps)
    shard(model)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    return model, optimizer


def replaced_by_shards(shard):
    model, optimizer = older_than_its_shards("Muon", shard, SAVED)
    take_steps(model, optimizer, STEPS - SAVED, SAVED)
    return outcome_of(model, optimizer)


def run(rank, ranks, folder):
    from torch.distributed.device_mesh import init_device_mesh

    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting{ranks}", rank=rank, world_size=ranks, timeout=timeout
    )
    mesh = init_device_mesh("cpu", (ranks,))
    shard = over(mesh)
    results = {
        "cases": {name: outcome_of(*run_case(name, shard)) for name in CASES},
        "replicated": outcome_of(*run_case("unscion", replicated_over(mesh))),
        "net": trained_net(shard) if FORWARD else None,
        "live_state": live_state(shard),
        "one_rank": states_of_one_rank(shard, folder),
        "from_whole": from_whole_state(shard, folder, rank),
        "changes": changes(shard),
        "replaced": replaced_by_shards(shard),
        "messages": messages_sent(shard),
        "windows": in_small_windows(shard),
        "errors": errors(mesh, shard, rank),
        "guide": run_guide(mesh, folder),
    }
    if ranks == 4:
        saved(shard, folder)
        both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        results["hybrid"] = {name: outcome_of(*run_case(name, over(both))) for name in RESUMED}
    else:
        results["resumed"] = resumed(shard, folder)
    torch.save(results, f"{folder}/rank{rank}of{ranks}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(0)
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
