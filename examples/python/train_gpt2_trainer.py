#!/usr/bin/env python3
"""Trains a small GPT-2 of Hugging Face's transformers on the bytes of a text, from scratch, with their Trainer:
train_gpt2_trainer.py TEXT [--steps 300] [--out FOLDER] [--resume FOLDER/checkpoint-150]."""

import argparse
import pathlib

import torch
import transformers

import gluon

LENGTH = 128


class Bytes(torch.utils.data.Dataset):
    """Pieces of LENGTH bytes, each byte in one of them."""

    def __init__(self, path):
        data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
        if len(data) < LENGTH:
            parser.error(f"{path} has {len(data)} bytes, and one piece needs {LENGTH}")
        self.pieces = data[: len(data) // LENGTH * LENGTH].view(-1, LENGTH)

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        return {"input_ids": self.pieces[index], "labels": self.pieces[index]}


class Print(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.4f}", flush=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("text", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon", help="adamw is torch's, to compare")
parser.add_argument("--lr", type=float, help="default: 1e-2 for muon, also of its AdamW; 1e-3 for adamw")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--out", default="runs/trainer", help="folder of the checkpoints")
parser.add_argument("--save-every", type=int, default=150)
parser.add_argument("--resume", help="a checkpoint of the same run")
args = parser.parse_args()
lr = args.lr or {"muon": 1e-2, "adamw": 1e-3}[args.optimizer]
data = Bytes(args.text)

torch.manual_seed(0)
# The head shares the embedding's weight, as GPT-2's does.
config = transformers.GPT2Config(
    vocab_size=256, n_positions=LENGTH, n_embd=args.width, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
)
model = transformers.GPT2LMHeadModel(config)
if args.optimizer == "muon":
    # With this scale steps are about as long as AdamW's, so that lr serves both.
    optimizer = gluon.Muon(model, lr=lr, adjust_lr_fn="match_rms_adamw", adamw_lr=lr)
    print(optimizer.routing_report())
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0)
settings = transformers.TrainingArguments(
    args.out,
    max_steps=args.steps,
    per_device_train_batch_size=16,
    lr_scheduler_type="cosine",
    warmup_steps=args.steps // 10,
    max_grad_norm=0,  # a step of Muon is as long for a long gradient as for a short one
    logging_steps=1,
    save_steps=args.save_every,
    report_to=[],
    disable_tqdm=True,
)
# None: Trainer makes the scheduler that its arguments describe.
trainer = transformers.Trainer(model, settings, train_dataset=data, optimizers=(optimizer, None), callbacks=[Print()])
trainer.remove_callback(transformers.PrinterCallback)
trainer.train(resume_from_checkpoint=args.resume)
