from typing import Any, Dict, Tuple

import pytest
import torch

import gluon

torch.set_num_threads(1)

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def needs_torch(*version: int) -> pytest.MarkDecorator:
    text = ".".join(map(str, version))
    return pytest.mark.skipif(TORCH < version, reason=f"needs torch {text} or later, this is {torch.__version__}")


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Net(torch.nn.Module):
    """An embedding, two hidden matrices, a norm's vectors and a head: every rule of unscion but conv."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(11, 6)
        self.up = torch.nn.Linear(6, 12)
        self.down = torch.nn.Linear(12, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, 11, bias=False)
        self.to(dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.down(torch.relu(self.up(self.embed(tokens))))))

    def loss(self, step: int = 0, forward: Any = None) -> torch.Tensor:
        tokens = torch.randint(0, 11, (8, 5), generator=torch.Generator().manual_seed(step)).to(self.up.weight.device)
        logits = (self if forward is None else forward)(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def train(model: Net, optimizer: torch.optim.Optimizer, steps: int, start: int = 0, forward: Any = None) -> None:
    for step in range(start, start + steps):
        optimizer.zero_grad()
        model.loss(step, forward).backward()
        optimizer.step()


def trained(steps: int, make: Any = gluon.Gluon, **options: Any) -> Tuple[Net, Any]:
    """A model and its optimizer after some steps."""
    model = Net()
    optimizer = make(model.named_parameters(), **options)
    train(model, optimizer, steps)
    return model, optimizer


def momenta(optimizer: torch.optim.Optimizer) -> Dict[str, torch.Tensor]:
    return {name: kinds["momentum"] for name, kinds in optimizer.state_dict("names")["state"].items()}


def close(a: torch.nn.Module, b: torch.nn.Module, atol: float) -> bool:
    return all(torch.allclose(x.cpu(), y.cpu(), atol=atol) for x, y in zip(a.parameters(), b.parameters()))


def same_bits(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, dict(b.named_parameters())[name]) for name, x in a.named_parameters())


@pytest.fixture
def model() -> Net:
    return Net()
