"""Trajectory smoothness: Lhat = |g' - g|* / |X' - X| of every layer while a model trains, and the fit of L0 and L1."""

import math
import os
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _core
from .distributed import all_or_none
from .optimizer import Gluon

__all__ = ["SmoothnessRecorder", "fit", "read_trajectory"]

read_trajectory = _core.read_trajectory

# Columns of a sample that log() writes.
LOGGED = ("smoothness", "gradient", "alignment", "radius")


class SmoothnessRecorder:
    """Measures an optimizer's layers every `every` steps, without changing a bit of the run.

    Args:
        optimizer: a Gluon optimizer, which the recorder observes. With a process group all ranks create the same
            recorder and request samples together; each measures the layers it owns.
        every: a sample starts at steps 0, every, 2 every, ... and ends one step later.
        start: no sample starts before this step. The authors' language run starts at 50, after projections that begin
            at zero have moved.
        mode: the source of the two gradients. ``"consecutive"``: each step's own batch, mostly the batches' noise.
            ``"full"``: both are full gradients. ``"same_batch"``: the next batch at the old and the new point, which
            measures curvature without noise. For it, when ``needs_reference()`` is true, compute the gradients of the
            NEXT batch, call ``take_reference()``, and compute this step's gradients again before ``optimizer.step()``.
        dual: how the dual of spectral norms is computed: ``"exact"``, an orthogonalizer, or ``"auto"`` (exact on the
            CPU).
        geometry: the norms to measure in; by default the optimizer's, and unscion's for layers left to AdamW.

    >>> import torch, gluon
    >>> weight = torch.nn.Parameter(torch.ones(2, 2))
    >>> optimizer = gluon.Gluon([("weight", weight)], preset="normalized_descent", radius=0.1)
    >>> recorder = gluon.SmoothnessRecorder(optimizer, every=2, mode="full")
    >>> for _ in range(6):
    ...     weight.grad = 3 * weight.detach()  # of 3/2 |X|^2, whose L0 is 3 and whose L1 is 0
    ...     optimizer.step()
    >>> [round(row["smoothness"], 4) for row in recorder.rows()]
    [3.0, 3.0, 3.0]
    """

    def __init__(
        self,
        optimizer: Gluon,
        every: int = 50,
        mode: str = "consecutive",
        *,
        start: int = 0,
        dual: str = "auto",
        geometry: Optional[_core.Geometry] = None,
    ) -> None:
        if not isinstance(optimizer, Gluon):
            raise TypeError(f"SmoothnessRecorder: expected a gluon optimizer, got {type(optimizer).__name__}")
        optimizer._refuse_dtensors("SmoothnessRecorder", "samples need whole layers")
        optimizer._follow_groups()
        if optimizer._collective is not None:
            options = f"every {every}, start {start}, mode {mode}, dual {dual}"
            _core.check_agreement(optimizer._collective, "recorders", options)
        self._optimizer = optimizer
        self._collective = optimizer._collective
        layers = optimizer._core.layers
        measuring = _core.measuring_geometry(optimizer.geometry if geometry is None else geometry)
        measuring = optimizer._rules_for(layers, measuring)
        owned = [optimizer._core.owns(i) for i in range(len(layers))]
        self._recorder = _core.Recorder(layers, measuring, every=every, start=start, mode=mode, dual=dual, owned=owned)
        self._trajectory = self._recorder.measured()
        self._unlogged: Optional[List[dict]] = None  # samples since the last log(); before the first, all
        optimizer.add_observer(self._recorder)

    def needs_reference(self) -> bool:
        """Whether take_reference() must be called before the next step; only in ``same_batch``."""
        return self._recorder.needs_reference(self._optimizer.steps_taken)

    def take_reference(self) -> None:
        """Copies the current gradients, which must be those of the next batch.

        With a process group it copies their mean over the ranks and then clears the gradients.
        """
        if self._collective is None:
            self._recorder.take_reference()
            return
        self._optimizer._core.reduce_gradients()
        self._recorder.take_reference()
        self._optimizer._core.zero_grad()

    @property
    def trajectory(self) -> _core.Trajectory:
        """All samples so far."""
        samples = self._recorder.take_samples()
        samples = samples if self._collective is None else samples.gathered(self._collective)
        self._trajectory.extend(samples)
        if self._unlogged is not None:
            self._unlogged.extend(samples.rows())
        return self._trajectory

    def rows(self) -> List[dict]:
        """One dict per sample, with the columns of smoothness.csv."""
        return self.trajectory.rows()

    def log(self, to: Any) -> int:
        """Writes the samples since the last call as scalars, and returns how many scalars there were.

        `to` is an object with ``add_scalar(name, value, step)``, such as torch.utils.tensorboard's SummaryWriter, or a
        function of these three. Names are "smoothness/LAYER", "gradient/LAYER", "alignment/LAYER" and "radius/LAYER",
        sorted by step. With a process group all ranks call it, and the first one writes.
        """
        write = getattr(to, "add_scalar", to)
        if not callable(write):
            raise TypeError(
                "SmoothnessRecorder: log() needs an object with add_scalar(), or a function of (name, value, step), "
                f"got {type(to).__name__}"
            )
        trajectory = self.trajectory
        rows = trajectory.rows() if self._unlogged is None else self._unlogged
        count = 0
        with all_or_none(self._collective, "when logging samples"):
            for row in sorted(rows, key=lambda row: row["step"]):
                # A layer left to AdamW has no radius, and one that another geometry cuts differently no momentum.
                values = [(column, row[column]) for column in LOGGED if not math.isnan(row[column])]
                count += len(values)
                if self._collective is None or self._collective.rank == 0:
                    for column, value in values:
                        write(f"{column}/{row['layer']}", value, row["step"])
        self._unlogged = []
        return count

    def to_csv(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes all samples for `gluon fit` and gluon.fit(). With a process group its first rank writes."""
        trajectory = self.trajectory
        with all_or_none(self._collective, "when writing samples"):
            if self._collective is None or self._collective.rank == 0:
                trajectory.to_csv(os.fspath(path))

    def to_dataframe(self) -> Any:
        """All samples as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows())


def fit(
    samples: Union[SmoothnessRecorder, _core.Trajectory, str, "os.PathLike[str]", Sequence[float]],
    gradient: Optional[Sequence[float]] = None,
    *,
    hinge: float = 5.0,
    l0_zero: bool = False,
    skip_first: Optional[int] = None,
) -> Any:
    """Fits L0 and L1 of Lhat ~ L0 + L1 |g|*, exactly.

    `samples` is a recorder, a trajectory, a run folder, smoothness.csv or a log of the paper's authors. Each layer is
    fitted, and ``.radii()`` of the result predicts theorem 1's radius of each group. For a single fit, pass two
    sequences, smoothness and gradient. `hinge` (lambda) is the extra weight of samples above the line.

    `skip_first` leaves out that many first samples of each layer; None, the default, those that are more than 3 times
    above the line of the others (``.left_out`` counts them), and 0 none, as in the paper. ``.doubt`` says why a fit, or
    a group's radius, means nothing; it is empty when nothing speaks against it.

    >>> import gluon
    >>> gluon.fit([3.0, 5.0, 7.0], [1.0, 2.0, 3.0])
    Fit(l0=1, l1=2, mse_rel=0, violations=0, samples=3)
    """
    options: Dict[str, Any] = {"hinge": hinge, "l0_zero": l0_zero, "skip_first": skip_first}
    if gradient is not None:
        return _core.fit_smoothness(list(samples), list(gradient), **options)  # type: ignore[arg-type]
    if isinstance(samples, SmoothnessRecorder):
        samples = samples.trajectory
    elif isinstance(samples, (str, os.PathLike)):
        samples = _core.read_trajectory(os.fspath(samples))
    if not isinstance(samples, _core.Trajectory):
        raise TypeError("fit: expected a recorder, a trajectory or a path, or smoothness and gradient")
    return _core.fit_trajectory(samples, **options)
