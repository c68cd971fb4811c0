#!/usr/bin/env python3
"""Parameters named as in Hugging Face's transformers: which rule applies to which, and how to correct wrong roles.

The model has only the names of a Llama; with transformers it would come from AutoModelForCausalLM.
"""

import torch
from torch import nn

import gluon

WORDS, WIDTH, LAYERS = 96, 32, 2


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.ModuleDict({f"{name}_proj": linear(WIDTH, WIDTH) for name in "qkvo"})
        self.mlp = nn.ModuleDict({f"{name}_proj": linear(WIDTH, 4 * WIDTH) for name in ("gate", "up")})
        self.mlp["down_proj"] = linear(4 * WIDTH, WIDTH)
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):  # instead of attention: uses every projection, and tokens see earlier tokens
        a, y = self.self_attn, self.input_layernorm(x)
        gate = (a["q_proj"](y) * a["k_proj"](y)).sigmoid()
        past = (gate * a["v_proj"](y)).cumsum(1) / torch.arange(1, x.size(1) + 1).view(-1, 1)
        x = x + a["o_proj"](past)
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](self.mlp["gate_proj"](y).sigmoid() * self.mlp["up_proj"](y))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(WORDS, WIDTH),
            "layers": nn.ModuleList([DecoderLayer() for _ in range(LAYERS)]),
            "norm": nn.LayerNorm(WIDTH),
        })  # fmt: skip
        self.lm_head = linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens)
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))


torch.manual_seed(0)
model = CausalLM()
# Names give the roles of embed_tokens and lm_head; *_proj are hidden matrices. A model with a head called score, as for
# classification, needs roles={"score.weight": "head"}. One optimizer takes all parameters.
optimizer = gluon.Gluon(model.named_parameters(), preset="unscion", radius={"hidden": 0.02, "head": 0.5})
print(optimizer.routing_report())

# Muon for the projections; its AdamW for embedding, head and norms.
print(gluon.Muon(model.named_parameters(), lr=0.02, adamw_lr=3e-4).routing_report())

# Other radii for some projections: rules precede the preset's, and the first match decides.
wide = {"pattern": "*.mlp.*", "norm": "scaled(sqrt(n/m),spectral)", "radius": 0.04}
print(gluon.Gluon(model.named_parameters(), preset="unscion", geometry=[wide]).routing_report())

for step in range(20):
    tokens = (torch.randint(WORDS, (16, 1)) + 5 * torch.arange(17)) % WORDS
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0 or step == 19:
        print(f"step {step} loss {loss.item():.4f}")
