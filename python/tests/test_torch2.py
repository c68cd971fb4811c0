"""Features of torch 2 and of GPUs: compiled models, CUDA graphs, the fused step."""

import copy
import warnings

import pytest
import torch
from conftest import Net, close, needs_cuda, needs_torch, train, trained

import gluon


def kernels_run():
    """The fused step's kernels need compute capability 9.0."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


needs_kernels = pytest.mark.skipif(not kernels_run(), reason="no GPU of compute capability 9.0 (H100, H200)")
BACKENDS = ["aot_eager", pytest.param("inductor", marks=needs_cuda)]


@needs_torch(2, 1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_model_trains_like_the_plain_one(backend):
    device = "cuda" if backend == "inductor" else "cpu"
    plain, model = Net().to(device), Net().to(device)
    compiled = torch.compile(model, backend=backend)
    one, two = gluon.Gluon(plain.named_parameters()), gluon.Gluon(compiled.named_parameters())
    train(plain, one, 5)
    train(model, two, 5, forward=compiled)
    assert close(plain, model, atol=1e-3)
    # The names are the same, so either can load the other's state.
    one.load_state_dict(two.state_dict())
    assert gluon.Gluon(compiled).routing_report() == gluon.Gluon(plain).routing_report()


@needs_torch(2, 1)
def test_step_inside_a_compiled_function(model):
    plain, _ = trained(3)
    optimizer = gluon.Gluon(model.named_parameters())

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    for step in range(3):
        optimizer.zero_grad()
        model.loss(step).backward()
        update()
    assert optimizer.steps_taken == 3
    assert close(model, plain, atol=1e-6)


@needs_cuda
@pytest.mark.parametrize("preset", ["unscion", "scion", "muon", "adamw"])
def test_gpu_trains_like_the_cpu(preset):
    cpu = Net(dtype=torch.float64)
    gpu = copy.deepcopy(cpu).cuda()
    train(cpu, gluon.Gluon(cpu.named_parameters(), preset=preset), 5)
    train(gpu, gluon.Gluon(gpu.named_parameters(), preset=preset), 5)
    assert close(cpu, gpu, atol=5e-4)


def hidden_layers():
    """Layers that the fused step accepts: float32, columns divisible by 8."""
    torch.manual_seed(0)
    layers = []
    for i, shape in enumerate([(128, 128), (128, 128), (512, 128), (128, 512)]):
        parameter = torch.nn.Parameter(torch.randn(shape, device="cuda"))
        parameter.grad = torch.randn_like(parameter)
        layers.append((f"layers.{i}.weight", parameter))
    return layers


@needs_kernels
def test_hidden_layers_use_the_kernels():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="gluon:")  # a slower path would warn
        optimizer = gluon.Muon(hidden_layers())
        for _ in range(3):
            optimizer.step()
        optimizer.wait()
    with pytest.warns(UserWarning, match="do not fit the GPU's fused step"):
        gluon.Muon(hidden_layers(), ns_steps=5).step()


@needs_kernels
def test_wait_reports_a_bad_gradient():
    layers = hidden_layers()
    optimizer = gluon.Gluon(layers)
    start = [parameter.detach().clone() for _, parameter in layers]
    layers[2][1].grad[0, 0] = float("nan")
    optimizer.step()
    with pytest.raises(gluon.NonFiniteGradient, match="layer 'layers.2.weight'"):
        optimizer.wait()
    assert all(torch.equal(parameter, x) for (_, parameter), x in zip(layers, start))


@needs_torch(2, 0)
@needs_kernels
def test_step_inside_a_capture_is_rejected():
    layers = hidden_layers()
    optimizer = gluon.Gluon(layers)
    optimizer.step()
    optimizer.wait()
    with pytest.raises(ValueError, match="cannot be part of a CUDA graph"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            optimizer.step()
    optimizer.step()
    optimizer.wait()
    assert optimizer.steps_taken == 2
