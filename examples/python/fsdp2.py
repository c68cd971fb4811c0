#!/usr/bin/env python3
"""A model in shards: fully_shard(), one optimizer, a checkpoint that any number of ranks loads.

    torchrun --nproc_per_node 4 examples/python/fsdp2.py FOLDER

on CPUs over Gloo, or with one GPU per rank over NCCL. Needs a torch whose fully_shard() runs on the device.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gluon

WORDS, WIDTH, LAYERS = 96, 32, 2

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", help="of the checkpoint")
folder = parser.parse_args().folder
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
mesh = init_device_mesh(device, (dist.get_world_size(),))


def make(seed):
    torch.manual_seed(seed)  # all ranks start with the same parameters
    blocks = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS, bias=False)).to(device)
    for block in model[1:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # Roles of nn.Sequential's names: the embedding is known from its module, the head by its shape.
    return model, gluon.Muon(model, lr=0.02, adamw_lr=3e-3)  # after fully_shard()


def train(model, optimizer, first, last):
    generator = torch.Generator().manual_seed(dist.get_rank())  # each rank has a batch of its own
    for step in range(first, last):
        tokens = (torch.randint(WORDS, (16, 1), generator=generator) + 5 * torch.arange(17)) % WORDS
        tokens = tokens.to(device)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
        if dist.get_rank() == 0 and (step % 5 == 0 or step == last - 1):
            print(f"step {step} loss {loss.item() / dist.get_world_size():.4f}")


model, optimizer = make(seed=0)
if dist.get_rank() == 0:
    print(optimizer.routing_report())
train(model, optimizer, 0, 20)
parameters, state = get_state_dict(model, optimizer)
dcp.save({"model": parameters, "optimizer": state}, checkpoint_id=folder)

model, optimizer = make(seed=1)
parameters, state = get_state_dict(model, optimizer)
loaded = {"model": parameters, "optimizer": state}
dcp.load(loaded, checkpoint_id=folder)
set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
train(model, optimizer, optimizer.steps_taken, 30)
dist.destroy_process_group()
