"""Warnings point at the user's line, whatever classes and wrappers of torch are between."""

import linecache

import pytest
import torch

import gluon


def clipped(model):
    optimizer = gluon.Muon(model)
    for _ in range(4):
        model.loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()


def without_gradient(model):
    optimizer = gluon.Gluon(model)
    model.up.weight.grad = torch.ones_like(model.up.weight)
    optimizer.step()


CAUSES = {
    "lr from habit": lambda model: gluon.Gluon(model, lr=1e-3),
    "no names": lambda model: gluon.Gluon(model.parameters()),
    "no names for a subclass": lambda model: gluon.Scion(model.parameters()),
    "clipping": clipped,
    "no gradient": without_gradient,
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_warning_points_at_the_users_line(cause, model):
    with pytest.warns(UserWarning, match="^gluon: ") as found:
        cause(model)
    for warning in found:
        assert warning.filename == __file__
        line = linecache.getline(__file__, warning.lineno)
        assert "gluon." in line or "optimizer.step()" in line
