"""Layer-wise LMO optimizers (Gluon, Muon, Scion and relatives) for PyTorch, on the C++ library of the same name.

>>> import torch, gluon
>>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
>>> optimizer = gluon.Gluon(model.named_parameters(), radius={"hidden": 0.05})
>>> loss = model(torch.ones(3, 4)).square().mean()
>>> loss.backward()
>>> optimizer.step()
>>> print(optimizer.routing_report())
group   norm                         radius  layers    parameters
hidden  scaled(sqrt(n/m),spectral)   0.05         2            48
*       scaled(1/sqrt(m),euclidean)  0.05         2            10
<BLANKLINE>
"""

import importlib as _importlib

_importlib.import_module("torch")  # before _core, which needs its libraries

from . import norms, theory
from ._core import Geometry, NonFiniteGradient, RankLost, __version__, default_orthogonalizer, preset
from .attention import qk_clip
from .methods import Muon, Scion
from .norms import orthogonalize
from .optimizer import Gluon
from .smoothness import SmoothnessRecorder, fit, read_trajectory

__all__ = [
    "Geometry",
    "Gluon",
    "Muon",
    "NonFiniteGradient",
    "RankLost",
    "Scion",
    "SmoothnessRecorder",
    "__version__",
    "default_orthogonalizer",
    "fit",
    "norms",
    "orthogonalize",
    "preset",
    "qk_clip",
    "read_trajectory",
    "theory",
]
