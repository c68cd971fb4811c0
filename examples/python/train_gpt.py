#!/usr/bin/env python3
"""Trains a small GPT on bytes: train_gpt.py [TEXT] [--steps 300] [--device cuda]. Default: the project's sources."""

import argparse
import math
import pathlib

import gluon
import torch
from torch import nn

WIDTH, HEADS, BLOCKS, LENGTH, BATCH = 128, 4, 4, 128, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).masked_fill(self.future, -math.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.norm2(x))).square())


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(BLOCKS)]), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(LENGTH, device=tokens.device))
        return self.lm_head(self.norm(self.blocks(x)))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("text", nargs="?", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()
project = pathlib.Path(__file__).parent / "../.."
sources = [args.text] if args.text else sorted(project.glob("gluon/**/*.[ch]*"))
if not sources:
    parser.error("name a TEXT: the project's sources are not beside this program")
data = torch.tensor(list(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)

torch.manual_seed(0)
model = GPT().to(args.device)
rule = {"pattern": "*.qkv.weight", "norm": "scaled(sqrt(n/m),spectral)", "radius": 0.018, "split": "qkv"}
optimizer = gluon.Gluon(model, preset="unscion", geometry=[rule])  # q, k and v are separate matrices
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
print(optimizer.routing_report())
for step in range(args.steps):
    starts = torch.randint(len(data) - LENGTH, (BATCH,))
    batch = torch.stack([data[i : i + LENGTH + 1] for i in starts.tolist()]).long().to(args.device)
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"step {step} loss {loss.item():.4f}")
