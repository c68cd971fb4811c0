"""What the ranks of test_sharded.py do, and the program of one rank. Arguments: rank, ranks, folder."""

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

import gluon

BATCH = 12  # sequences; divisible by two and three ranks
STEPS = 5
WHOLE = slice(0, BATCH)
MODES = ["consecutive", "same_batch"]


def share(rank, ranks):
    return slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)


def new_net(seed=0):
    return Net(seed, torch.float64)


def make(model, preset="unscion", **options):
    return gluon.Gluon(model.named_parameters(), preset=preset, **options)


def loss_of(model, step, part):
    tokens = torch.randint(0, 11, (BATCH, 5), generator=torch.Generator().manual_seed(step))[part]
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def run_steps(model, optimizer, part, steps=STEPS, start=0):
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(model, step, part).backward()
        optimizer.step()


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# ---- scenarios for ranks with shares of a batch, and for one process with the whole: (group, part) -> model, optimizer


def steps_of(make_optimizer=gluon.Gluon, dtype=torch.float64, ddp=None, share_layers=True, **options):
    """`ddp`: the options of a DistributedDataParallel around the model."""

    def run(group, part):
        inner = model = Net(dtype=dtype)
        if group is not None and ddp is not None:
            model = torch.nn.parallel.DistributedDataParallel(inner, process_group=group, **ddp)
        group = group if share_layers else None
        optimizer = make_optimizer(model.named_parameters(), process_group=group, **options)
        run_steps(model, optimizer, part)
        return inner, optimizer

    return run


def with_scheduler(group, part):
    model = new_net()
    optimizer = make(model, process_group=group)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(STEPS):
        run_steps(model, optimizer, part, 1, step)
        scheduler.step()
    return model, optimizer


def staged(group, part):
    """As with a backend that does not accept CPU tensors: they are copied to another device and back."""
    device_of = gluon.distributed._staging_device
    gluon.distributed._staging_device = lambda _: torch.device("cpu")
    try:
        return steps_of()(group, part)
    finally:
        gluon.distributed._staging_device = device_of


def join_and_freeze(group, part):
    """A layer that is frozen at first, a group added later, and a layer that is frozen at the end."""
    model = new_net()
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the layer without a gradient
        run_steps(model, optimizer, part, 2, 6)
    return model, optimizer


def changed_groups(group, part):
    """Keys of a group that change, and parameters that are replaced."""
    model = new_net()
    optimizer = make(model, process_group=group)
    run_steps(model, optimizer, part, 2)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    run_steps(model, optimizer, part, 2, 2)
    optimizer.param_groups[0].update(norm="rows", radius=0.01)
    run_steps(model, optimizer, part, 2, 4)
    other = copy.deepcopy(model)
    optimizer.param_groups[0]["params"] = list(other.parameters())
    run_steps(other, optimizer, part, 2, 6)
    return other, optimizer


def from_torch(group, part):
    """A run that torch.optim.AdamW began."""
    model = new_net()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run_steps(model, adamw, WHOLE, 2)
    optimizer = make(model, preset="muon", process_group=group)
    optimizer.load_state_dict(adamw.state_dict())
    run_steps(model, optimizer, part, 2, 2)
    return model, optimizer


PRESETS = ["unscion", "scion", "muon", "normuon", "sgd", "adamw", "deterministic_gluon"]
SCENARIOS = {
    **{preset: steps_of(preset=preset) for preset in PRESETS},
    "sphere": steps_of(preset="sphere", steps=STEPS),
    "Muon": steps_of(gluon.Muon),
    "Scion": steps_of(gluon.Scion),
    "float32": steps_of(dtype=torch.float32, preset="normalized_descent", radius=0.05),
    "inside_ddp": steps_of(ddp={}),
    "inside_ddp_with_bucket_views": steps_of(ddp={"gradient_as_bucket_view": True}),
    "ddp_alone": steps_of(ddp={}, share_layers=False),
    "with_scheduler": with_scheduler,
    "staged": staged,
    "join_and_freeze": join_and_freeze,
    "changed_groups": changed_groups,
    "from_torch": from_torch,
}


def outcome_of(model, optimizer):
    """Weights, state, radii and bytes of state."""
    return weights(model), optimizer.state_dict("names"), optimizer.effective_radii(), optimizer.state_bytes()


def outcome(name, group=None, part=WHOLE):
    return outcome_of(*SCENARIOS[name](group, part))


def record_steps(model, optimizer, part, mode):
    recorder = gluon.SmoothnessRecorder(optimizer, every=2, mode=mode)
    for step in range(STEPS):
        if recorder.needs_reference():
            optimizer.zero_grad()
            loss_of(model, step + 1, part).backward()
            recorder.take_reference()
        run_steps(model, optimizer, part, 1, step)
    return recorder


# ---- what only ranks do ----


def message(action):
    """The type and text of the error that action() raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return "none", ""


def recorded(group, part, folder):
    result = {}
    for mode in MODES:
        model = new_net()
        recorder = record_steps(model, make(model, process_group=group), part, mode)
        path = f"{folder}/{mode}.csv"
        recorder.to_csv(path)
        dist.barrier()
        result[mode] = (recorder.rows(), weights(model), gluon.read_trajectory(path).rows())
    return result


def resumed(group, part, folder):
    """Loads a state that one process saved, then takes two more steps."""
    saved_weights, state = torch.load(f"{folder}/single.pt")
    model = new_net(1)
    model.load_state_dict(saved_weights)
    optimizer = make(model, process_group=group)
    optimizer.load_state_dict(state)
    run_steps(model, optimizer, part, 2, STEPS)
    return weights(model), optimizer.steps_taken


def live_state(group, part):
    """optimizer.state on every rank: the same as state_dict()."""
    model, optimizer = SCENARIOS["muon"](group, part)
    saved = optimizer.state_dict()["state"]
    return [
        torch.equal(tensor, saved[number][kind])
        for number, parameter in enumerate(model.parameters())
        for kind, tensor in optimizer.state[parameter].items()
    ]


def lone_gradient(group, rank):
    """Only rank 0 has a gradient of the first layer, and no rank has one of the second."""
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
    model = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.zeros(2, 2))})
    optimizer = make(model, "sign_descent", radius=0.5, momentum=0.5, process_group=group)
    for _ in range(3):
        model["w"].grad = torch.full((2, 2), float(rank))
        optimizer.step()
    return outcome_of(model, optimizer)


def transposed(group):
    """A layer whose entries are not in row-major order."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(5, 3).t())
    optimizer = gluon.Gluon([("w", parameter)], preset="adamw", process_group=group)
    gradient = torch.randn(3, 5)
    parameter.grad = gradient.clone()
    optimizer.step()
    return parameter.detach().clone(), optimizer.state_dict("names")["state"]["w"]["adamw.first"] / gradient


def errors(group, part, rank, before):
    """Mistakes of one rank, which all ranks must report."""
    messages = {"before": before, "no_group": message(lambda: make(Net(), process_group="world"))}
    model = new_net()
    optimizer = make(model, process_group=group)
    run_steps(model, optimizer, part, 1)
    start = weights(model)
    if rank == 1:
        model.head.weight.grad[0, 0] = float("nan")
    messages["nan"] = message(optimizer.step)
    messages["nan_moved"] = any(not torch.equal(p, start[n]) for n, p in model.named_parameters())
    skipping = make(model, non_finite="skip", process_group=group)
    messages["skip"] = message(skipping.step)
    messages["skipped"] = (skipping.steps_skipped, skipping.steps_taken)

    state = optimizer.state_dict("names")
    bad, older = copy.deepcopy(state), copy.deepcopy(state)
    if rank == 1:
        older["gluon"]["step"] = 7
        for layer in bad["state"].values():
            layer["momentum"] = torch.zeros(1)
    no_groups = {key: value for key, value in bad.items() if rank != 1 or key != "param_groups"}
    for case, loaded in {"bad_state": bad, "no_groups": no_groups, "other_step": older}.items():
        messages[case] = message(lambda: optimizer.load_state_dict(loaded))
    optimizer.load_state_dict(state)

    some = list(Net().named_parameters())[rank:]
    for case, action in {
        "other_values": lambda: make(Net(seed=rank), process_group=group),
        "other_layers": lambda: gluon.Gluon(some, process_group=group),
        "other_option": lambda: make(Net(), momentum=0.9 if rank else 0.8, process_group=group),
        "bad_option": lambda: make(Net(), momentum=0.9 if rank else 2.0, process_group=group),
        "deepcopy": lambda: copy.deepcopy(optimizer),
        "pickle": lambda: pickle.dumps(optimizer),
        "save": lambda: torch.save(optimizer, io.BytesIO()),
        "other_recorder": lambda: gluon.SmoothnessRecorder(optimizer, every=2 + rank),
    }.items():
        messages[case] = message(action)
    recorder = gluon.SmoothnessRecorder(optimizer)
    messages["no_file"] = message(lambda: recorder.to_csv("/no/such/folder/smoothness.csv"))
    run_steps(model, optimizer, part, 1)
    added = torch.nn.Parameter(torch.zeros(2, 2))
    messages["recorded_join"] = message(lambda: optimizer.add_param_group({"params": [("later", added)]}))
    return messages


def subgroup(rank, ranks):
    """All ranks but the first; their ranks in the subgroup differ from those in the world."""
    group = dist.new_group(list(range(1, ranks)))
    if rank == 0:
        return message(lambda: make(Net(), process_group=group))
    return outcome("unscion", group, share(rank - 1, ranks - 1)), gluon.distributed.collective_of(group).rank


def lost_rank(rank, ranks, folder):
    """The last rank exits; the others must stop waiting for it."""
    group = dist.new_group(list(range(ranks)), timeout=datetime.timedelta(seconds=20))
    model = Net()
    optimizer = make(model, process_group=group)
    if rank == ranks - 1:
        os._exit(0)
    torch.save(message(lambda: train(model, optimizer, 3)), f"{folder}/lost{rank}.pt")
    os._exit(0)  # the groups can no longer be destroyed in order


def run(rank, ranks, folder):
    before = message(lambda: make(Net(), process_group="world"))
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks, timeout=timeout
    )
    group, part = dist.group.WORLD, share(rank, ranks)
    results = {
        **{name: outcome(name, group, part) for name in SCENARIOS},
        "recorded": recorded(group, part, folder),
        "resumed": resumed(group, part, folder),
        "live_state": live_state(group, part),
        "lone_gradient": lone_gradient(group, rank),
        "one_layer": one_layer(group, rank),
        "transposed": transposed(group),
        "errors": errors(group, part, rank, before),
        "subgroup": subgroup(rank, ranks),
    }
    torch.save(results, f"{folder}/rank{rank}.pt")
    lost_rank(rank, ranks, folder)


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
