"""One of the ranks of test_accelerate.py, whose model Accelerate shards by fully_shard(). Argument: folder."""

import os
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from conftest import Net

import gluon

STEPS, SAVED = 6, 3


def make(seed):
    model = Net(seed, torch.float64)
    return model, gluon.Muon(model, lr=0.02)


def train(model, optimizer, first, last, clip=torch.nn.utils.clip_grad_norm_):
    """The same batches on all ranks."""
    for step in range(first, last):
        model.loss(step).backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def accelerator_with_shards():
    """Accelerate shards on GPUs only, so that here it has to be told what it would find there."""
    accelerator = Accelerator(cpu=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False)
    for shared in (AcceleratorState._shared_state, PartialState._shared_state):
        shared["distributed_type"] = DistributedType.FSDP
    AcceleratorState._shared_state["fsdp_plugin"] = plugin
    assert accelerator.is_fsdp2
    return accelerator


def weights(model):
    return {name: parameter.full_tensor() for name, parameter in model.named_parameters()}


def run(folder):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    accelerator = accelerator_with_shards()
    model, optimizer = accelerator.prepare(*make(seed=0))
    shard = list(model.up.weight.to_local().shape)
    train(model, optimizer, 0, SAVED, accelerator.clip_grad_norm_)
    accelerator.save_state(f"{folder}/saved")
    train(model, optimizer, SAVED, STEPS, accelerator.clip_grad_norm_)
    results = {"shard": shard, "whole": weights(model)}
    accelerator.free_memory()
    model, optimizer = accelerator.prepare(*make(seed=5))
    accelerator.load_state(f"{folder}/saved")
    results["loaded"] = optimizer.optimizer.steps_taken
    train(model, optimizer, SAVED, STEPS, accelerator.clip_grad_norm_)
    results["resumed"] = weights(model)
    torch.save(results, f"{folder}/rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(sys.argv[1])
