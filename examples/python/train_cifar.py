#!/usr/bin/env python3
"""Trains a CNN on CIFAR-10: train_cifar.py FOLDER [--epochs 4] [--images 0]. FOLDER contains data_batch_*.bin and
test_batch.bin, or .bin.xz."""

import argparse
import lzma
import pathlib
import sys

import torch
from torch import nn

import gluon

IMAGE = 1 + 3 * 32 * 32  # bytes: a label, then the red, green and blue planes


def read(folder, pattern, device):
    paths = sorted(folder.glob(pattern + ".bin")) or sorted(folder.glob(pattern + ".bin.xz"))
    if not paths:
        sys.exit(f"train_cifar: no {pattern}.bin or {pattern}.bin.xz in {folder}")
    data = b"".join((lzma.open if path.suffix == ".xz" else open)(path, "rb").read() for path in paths)
    if len(data) % IMAGE:
        sys.exit(f"train_cifar: {folder}/{pattern}: {len(data)} bytes are not a multiple of an image's {IMAGE}")
    rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, IMAGE)
    images = rows[:, 1:].view(-1, 3, 32, 32).float() / 255
    return ((images - 0.47) / 0.25).to(device), rows[:, 0].long().to(device)


def layer(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.GELU())


def cnn(width=32):
    stages = [layer(3, width), layer(width, width), nn.MaxPool2d(2), layer(width, 2 * width), nn.MaxPool2d(2)]
    top = [layer(2 * width, 4 * width), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)]
    return nn.Sequential(*stages, *top)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--images", type=int, default=0, help="number of images of each set; 0: all")
parser.add_argument("--batch", type=int, default=250)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()
images, labels = (part[: args.images or None] for part in read(args.folder, "data_batch_*", args.device))
test_images, test_labels = (part[: args.images or None] for part in read(args.folder, "test_batch", args.device))

torch.manual_seed(0)
model = cnn().to(args.device)
last = [name for name, _ in model.named_parameters() if name.endswith("weight")][-1]
optimizer = gluon.Gluon(model, preset="unscion", radius={"conv": 0.05, "head": 1}, roles={last: "head"})
steps = args.epochs * (len(images) // args.batch)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / max(steps, 1))  # falls to zero
print(optimizer.routing_report())
for epoch in range(args.epochs):
    total = 0.0
    for chosen in torch.randperm(len(images), device=args.device).split(args.batch):
        if len(chosen) < args.batch:
            continue
        batch = images[chosen].flip(-1) if torch.rand(()) < 0.5 else images[chosen]
        loss = nn.functional.cross_entropy(model(batch), labels[chosen], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        guesses = torch.cat([model(part).argmax(1) for part in test_images.split(1000)])
    model.train()
    share = (guesses == test_labels).float().mean().item()
    print(f"epoch {epoch} loss {total / max(len(images) // args.batch, 1):.4f} test {100 * share:.1f} %")
