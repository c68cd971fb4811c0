"""One rank of test_ddp.py: trains on its part of each batch and saves what came out. Arguments: rank, ranks, folder."""

import sys

import torch
import torch.distributed as dist
from conftest import Net

import gluon


def loss_of(model, step, part, batch=8):
    tokens = torch.randint(0, 11, (batch, 5), generator=torch.Generator().manual_seed(step))[part]
    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def run(rank, ranks, folder, steps=5):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(Net(seed=0))
    optimizer = gluon.Gluon(model.named_parameters())
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, part).backward()
        optimizer.step()
    torch.save((model.module.state_dict(), optimizer.state_dict()), f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
