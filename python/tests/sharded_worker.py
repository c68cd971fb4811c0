"""One rank of test_sharded.py: runs every scenario and saves what came out. Arguments: rank, ranks, folder."""

import copy
import datetime
import io
import os
import pickle
import sys
import warnings

import torch
import torch.distributed as dist
from conftest import Net, train
from ddp_worker import loss_of

import gluon

BATCH = 12  # sequences; two and three ranks have equal shares
STEPS = 5
MODES = ["consecutive", "same_batch"]
PRESETS = ["unscion", "scion", "muon", "adamw", "deterministic_gluon"]


def share(rank, ranks):
    return slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)


def make(model, preset="unscion", **options):
    return gluon.Gluon(model.named_parameters(), preset=preset, **options)


def run_steps(model, optimizer, part, steps=STEPS, start=0, scheduler=None):
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(model, step, part, BATCH).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def message(action):
    """The error's type and text, which is what a rank has to tell."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return "none", ""


def presets(group, part):
    """Every preset by itself, without DDP."""
    result = {}
    for preset in PRESETS:
        model = Net(dtype=torch.float64)
        optimizer = make(model, preset, process_group=group)
        run_steps(model, optimizer, part)
        result[preset] = (weights(model), optimizer.state_dict(), optimizer.effective_radii(), optimizer.state_bytes())
    return result


def methods(group, part):
    result = {}
    for name, make_method in (("Muon", gluon.Muon), ("Scion", gluon.Scion)):
        model = Net(dtype=torch.float64)
        optimizer = make_method(model.named_parameters(), process_group=group)
        run_steps(model, optimizer, part)
        result[name] = weights(model)
    return result


def inside_ddp(group, part):
    """With DDP's two ways to keep gradients."""
    result = {}
    for views in (False, True):
        inner = Net(dtype=torch.float64)
        model = torch.nn.parallel.DistributedDataParallel(inner, process_group=group, gradient_as_bucket_view=views)
        run_steps(model, make(model, process_group=group), part)
        result[views] = weights(inner)
    return result


def single_precision(group, part):
    model = Net()
    run_steps(model, make(model, "normalized_descent", radius=0.05, process_group=group), part)
    return weights(model)


def record_steps(model, optimizer, part, mode):
    recorder = gluon.SmoothnessRecorder(optimizer, every=2, mode=mode)
    for step in range(STEPS):
        if recorder.needs_reference():
            optimizer.zero_grad()
            loss_of(model, step + 1, part, BATCH).backward()
            recorder.take_reference()
        run_steps(model, optimizer, part, 1, step)
    return recorder


def recorded(group, part, folder):
    """What the ranks measure together."""
    result = {}
    for mode in MODES:
        model = Net(dtype=torch.float64)
        recorder = record_steps(model, make(model, process_group=group), part, mode)
        path = f"{folder}/{mode}.csv"
        recorder.to_csv(path)
        dist.barrier()
        result[mode] = (recorder.rows(), weights(model), gluon.read_trajectory(path).rows())
    return result


def with_scheduler(group, part):
    model = Net(dtype=torch.float64)
    optimizer = make(model, process_group=group)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    run_steps(model, optimizer, part, scheduler=scheduler)
    return weights(model), optimizer.effective_radii()


def resumed(group, part, folder):
    """From a state of one process, which the test has made, to two more steps."""
    saved_weights, state = torch.load(f"{folder}/single.pt")
    model = Net(1, dtype=torch.float64)
    model.load_state_dict(saved_weights)
    optimizer = make(model, process_group=group)
    optimizer.load_state_dict(state)
    run_steps(model, optimizer, part, 2, STEPS)
    return weights(model), optimizer.steps_taken


def join_and_freeze(group, part):
    """Frozen at first, thawed later; a group added later; a layer frozen at the end."""
    model = Net(dtype=torch.float64)
    model.embed.weight.requires_grad_(False)
    named = list(model.named_parameters())
    optimizer = gluon.Gluon(named[:-1], process_group=group)
    run_steps(model, optimizer, part, 2)
    model.embed.weight.requires_grad_(True)
    run_steps(model, optimizer, part, 2, 2)
    optimizer.add_param_group({"params": named[-1:], "lr": 0.5})
    run_steps(model, optimizer, part, 2, 4)
    model.up.weight.requires_grad_(False)
    model.up.weight.grad = None
    return model, optimizer


def joining(group, part):
    model, optimizer = join_and_freeze(group, part)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a layer has no gradient
        run_steps(model, optimizer, part, 2, 6)
    return weights(model), optimizer.state_dict()["state"]


def lone_gradient(group, rank):
    """Only rank 0 has a gradient of one layer, and nobody has one of the other."""
    parameters = [torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(2)]
    optimizer = gluon.Gluon([("a", parameters[0]), ("b", parameters[1])], preset="sign_descent", process_group=group)
    if rank == 0:
        parameters[0].grad = torch.tensor([[1.0, -1.0], [0.0, 2.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def one_layer(group, rank):
    """Fewer layers than ranks."""
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = gluon.Gluon([("w", weight)], preset="sign_descent", radius=0.5, momentum=0.5, process_group=group)
    for _ in range(3):
        weight.grad = torch.full((2, 2), float(rank))
        optimizer.step()
    return weight.detach().clone(), optimizer.state_dict(), optimizer.effective_radii(), optimizer.state_bytes()


def transposed(group):
    """A layer whose memory is not in the order of its entries."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(5, 3).t())
    optimizer = gluon.Gluon([("w", parameter)], preset="adamw", process_group=group)
    gradient = torch.randn(3, 5)
    parameter.grad = gradient.clone()
    optimizer.step()
    first = optimizer.state_dict()["state"]["w"]["adamw.first"]
    return parameter.detach().clone(), first / gradient


def staged(group, part):
    """As with a backend that does not take tensors of the CPU: they go through copies."""
    from gluon import distributed

    device_of = distributed._staging_device
    distributed._staging_device = lambda _: torch.device("cpu")
    model = Net(dtype=torch.float64)
    optimizer = make(model, process_group=group)
    distributed._staging_device = device_of
    run_steps(model, optimizer, part)
    return weights(model), optimizer.state_dict()["state"]


def errors(group, part, rank):
    """Each on one rank alone; all of them have to hear of it."""
    said = {}
    model = Net(dtype=torch.float64)
    optimizer = make(model, process_group=group)
    run_steps(model, optimizer, part, 1)
    start = weights(model)
    if rank == 1:
        model.head.weight.grad[0, 0] = float("nan")
    said["nan"] = message(optimizer.step)
    said["nan_moved"] = any(not torch.equal(p, start[n]) for n, p in model.named_parameters())
    skipping = make(model, non_finite="skip", process_group=group)
    said["skip"] = message(skipping.step)
    said["skipped"] = (skipping.steps_skipped, skipping.steps_taken)

    state = optimizer.state_dict()
    bad = copy.deepcopy(state)
    if rank == 1:
        for layer in bad["state"].values():
            layer["momentum"] = torch.zeros(1)
    said["bad_state"] = message(lambda: optimizer.load_state_dict(bad))
    if rank == 1:
        del bad["param_groups"]
    said["no_groups"] = message(lambda: optimizer.load_state_dict(bad))
    older = copy.deepcopy(state)
    if rank == 1:
        older["gluon"]["step"] = 7
    said["other_step"] = message(lambda: optimizer.load_state_dict(older))
    optimizer.load_state_dict(state)

    said["other_values"] = message(lambda: make(Net(seed=rank), process_group=group))
    some = list(Net().named_parameters())[rank:]
    said["other_layers"] = message(lambda: gluon.Gluon(some, process_group=group))
    said["other_option"] = message(lambda: make(Net(), momentum=0.9 if rank else 0.8, process_group=group))
    said["bad_option"] = message(lambda: make(Net(), momentum=0.9 if rank else 2.0, process_group=group))
    said["deepcopy"] = message(lambda: copy.deepcopy(optimizer))
    said["pickle"] = message(lambda: pickle.dumps(optimizer))
    said["save"] = message(lambda: torch.save(optimizer, io.BytesIO()))
    said["other_recorder"] = message(lambda: gluon.SmoothnessRecorder(optimizer, every=2 + rank))
    recorder = gluon.SmoothnessRecorder(optimizer)
    said["no_file"] = message(lambda: recorder.to_csv("/no/such/folder/smoothness.csv"))
    run_steps(model, optimizer, part, 1)
    added = torch.nn.Parameter(torch.zeros(2, 2))
    said["recorded_join"] = message(lambda: optimizer.add_param_group({"params": [("later", added)]}))
    return said


def subgroup(rank, ranks):
    """All ranks but the first: the others' ranks in it are not those in the world."""
    members = list(range(1, ranks))
    group = dist.new_group(members)
    if rank == 0:
        return message(lambda: make(Net(), process_group=group))
    model = Net(dtype=torch.float64)
    optimizer = make(model, process_group=group)
    run_steps(model, optimizer, share(rank - 1, ranks - 1))
    return weights(model), optimizer.state_dict()["state"], optimizer._collective.rank


def lost_rank(rank, ranks, folder):
    """The last rank goes away; the others do not wait for it for ever."""
    group = dist.new_group(list(range(ranks)), timeout=datetime.timedelta(seconds=20))
    model = Net()
    optimizer = make(model, process_group=group)
    if rank == ranks - 1:
        os._exit(0)
    torch.save(message(lambda: train(model, optimizer, 3)), f"{folder}/lost{rank}.pt")
    os._exit(0)  # what is left of the groups cannot be ended in order


def run(rank, ranks, folder):
    before = message(lambda: make(Net(), process_group="world"))
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks, timeout=timeout
    )
    group, part = dist.group.WORLD, share(rank, ranks)
    results = {
        "before": before,
        "no_group": message(lambda: make(Net(), process_group="world")),
        "presets": presets(group, part),
        "methods": methods(group, part),
        "inside_ddp": inside_ddp(group, part),
        "single_precision": single_precision(group, part),
        "recorded": recorded(group, part, folder),
        "with_scheduler": with_scheduler(group, part),
        "resumed": resumed(group, part, folder),
        "joining": joining(group, part),
        "lone_gradient": lone_gradient(group, rank),
        "one_layer": one_layer(group, rank),
        "transposed": transposed(group),
        "staged": staged(group, part),
        "errors": errors(group, part, rank),
        "subgroup": subgroup(rank, ranks),
    }
    torch.save(results, f"{folder}/rank{rank}.pt")
    lost_rank(rank, ranks, folder)


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
