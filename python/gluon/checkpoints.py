"""The part of Gluon that saves, loads and copies an optimizer."""

import copy
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from . import _core
from .distributed import all_or_none, check_states
from .shards import is_dtensor
from .states import (
    by_kind, by_layer, group_state, has_torchs_layout, is_ours, loadable, of_torch, run_hooks, saved_groups,
    with_indices, with_names,
)  # fmt: skip


class Checkpoints:
    """What Gluon, a torch.optim.Optimizer, inherits beside it."""

    def state_dict(self, layout: str = "indices") -> Dict[str, Any]:
        """Everything needed to resume, in torch's layout: parameters are numbered over all groups, whose "param_names"
        name them, and tensors have the names that torch.optim.Muon and AdamW give them.

        ``layout="names"`` has the parameters' names instead of numbers, and the library's kinds of tensors.
        load_state_dict() takes both, and those that torch.distributed.checkpoint made of the first.
        """
        if layout not in ("names", "indices"):
            raise ValueError(f"state_dict: unknown layout '{layout}'; allowed are names, indices")
        run_hooks(self, "state_dict_pre")
        state = self._core.state()
        state_dict = {
            "gluon": {"version": state.version, "step": state.step},
            "state": by_layer(state.tensors),
            "param_groups": [group_state(group) for group in self.param_groups],
        }
        if layout == "indices":
            state_dict = with_indices(state_dict, self._joined)
        return run_hooks(self, "state_dict_post", state_dict)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state by name: the order of parameters and groups, and the number of ranks, may differ.

        Numbers of the groups (``lr``, ``momentum``, ``weight_decay``, ``decay``, ``radius``, ``ball``) come from the
        state; norms, normalisations, roles and splits stay those of this optimizer.

        A state of torch's optimizers, which numbers its parameters, is loaded as by load_torch_state().

        Raises ValueError, with nothing changed, if the state does not fit; with a process group on all ranks.
        """
        state_dict = run_hooks(self, "load_state_dict_pre", dict(state_dict))
        if has_torchs_layout(state_dict):
            if not is_ours(state_dict):
                self.load_torch_state(state_dict)
                run_hooks(self, "load_state_dict_post")
                return
            state_dict = with_names(state_dict)
        with all_or_none(self._collective, "when a state is loaded"):
            found_groups = saved_groups(self.param_groups, state_dict)
            about, layers = state_dict["gluon"], state_dict["state"]
            state = self._placed_state(about["version"], about["step"], by_kind(layers))
        if self._collective is not None:
            check_states(self._collective, state)
        before = [dict(group) for group in self.param_groups]
        try:
            for group, found in zip(self.param_groups, found_groups):
                group.update(copy.deepcopy(loadable(found)))
            # Parameters in the saved state are part of the core, frozen or not; others start with fresh state.
            core = self._make_core(self._joined | set(layers))
            if any(layer.name not in layers for layer in core.layers):
                fresh = {key: x for key, x in core.state().tensors.items() if key.split("/", 1)[1] not in layers}
                state = _core.OptimizerState(state.version, state.step, {**state.tensors, **fresh})
            with all_or_none(self._collective, "when a state is loaded"):
                core.load_state(state)
        except Exception:
            for group, kept in zip(self.param_groups, before):
                group.clear()
                group.update(kept)
            raise
        self._install(core)
        run_hooks(self, "load_state_dict_post")

    def load_torch_state(self, state_dict: Mapping[str, Any], params: Optional[Iterable[Any]] = None) -> None:
        """Loads the momentum and moments of torch.optim.Muon, AdamW or Adam, which refer to parameters by position.

        `params` is what that optimizer was made with: parameters, (name, parameter) pairs or groups, which must be
        among this optimizer's. By default both have all parameters in the same groups and order. So two states become
        one: ``optimizer.load_torch_state(muon, hidden)``, then ``optimizer.load_torch_state(adamw, others)``.

        Other parameters keep their state, and groups their lr and momentum, which mean something else there. AdamW's
        first moment becomes momentum. Raises ValueError, with nothing changed, if a tensor does not fit.
        """
        self._follow_groups()
        with all_or_none(self._collective, "when a state is loaded"):
            names = self._names_of(state_dict, params)
        if not self._joined.issuperset(names):
            self._rebuild(names)  # frozen now, perhaps not later
        state = self._core.state()
        with all_or_none(self._collective, "when a state is loaded"):
            parameters = {name: parameter for name, parameter, *_ in self._parameters()}
            loaded, steps = of_torch(state_dict, [(name, parameters[name].shape) for name in names], state.tensors)
            state = self._placed_state(state.version, steps or state.step, {**state.tensors, **loaded})
        if self._collective is not None:
            check_states(self._collective, state)
        with all_or_none(self._collective, "when a state is loaded"):
            self._core.load_state(state)

    def _placed_state(self, version: int, step: int, tensors: Dict[str, torch.Tensor]) -> _core.OptimizerState:
        """Raises ValueError on a part of a tensor whose parameter is whole."""
        for key, tensor in tensors.items():
            if is_dtensor(tensor) and self._dtensor() is None:
                raise ValueError(
                    f"state_dict: '{key}' is a DTensor, and no parameter is one; save the whole with "
                    "get_state_dict(..., options=StateDictOptions(full_state_dict=True))"
                )
        return _core.OptimizerState(version, step, tensors)

    def _names_of(self, state_dict: Mapping[str, Any], params: Optional[Iterable[Any]]) -> List[str]:
        """The names of the parameters of a state by position, in its order."""
        theirs = [len(group["params"]) for group in state_dict["param_groups"]]
        if params is None:
            ours = [len(group["params"]) for group in self.param_groups]
            if theirs != ours:
                raise ValueError(
                    f"state_dict: has groups of {theirs} parameters, the optimizer of {ours}, so that their positions "
                    "differ; say with load_torch_state(state_dict, params) which parameters they were"
                )
            return self._names()
        entries = list(params)
        if entries and isinstance(entries[0], dict):
            entries = [entry for group in entries for entry in group["params"]]
        tensors = [entry[1] if isinstance(entry, (tuple, list)) else entry for entry in entries]
        if len(tensors) != sum(theirs):
            raise ValueError(f"params: expected the {sum(theirs)} parameters of the state, got {len(tensors)}")
        known = {id(parameter): name for name, parameter, *_ in self._parameters()}
        for position, tensor in enumerate(tensors):
            if id(tensor) not in known:
                raise ValueError(f"params: number {position} is no parameter of this optimizer")
        return [known[id(tensor)] for tensor in tensors]

    # Attributes that deepcopy and pickle keep. Observers measure the original's parameters and are not copied.
    _kept: Tuple[str, ...] = (
        "defaults", "param_groups", "_base", "_default_momentum", "_joined", "_module_roles", "_options",
        "_roles", "_skipped",
    )  # fmt: skip

    def __getstate__(self) -> Dict[str, Any]:
        if self._collective is not None or self._dtensor() is not None:
            what = "of DTensors" if self._collective is None else "with a process group"
            raise TypeError(
                f"{type(self).__name__}: an optimizer {what} cannot be copied or pickled, because its "
                "momentum is on several ranks; call state_dict() on all of them and load it into another optimizer"
            )
        self._follow_groups()
        kept = {key: self.__dict__[key] for key in self._kept}
        kept["_skipped"] = self.steps_skipped
        return {**kept, "_saved": self._core.state().tensors, "_saved_step": self._core.steps_taken}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        state = dict(state)
        tensors, step = state.pop("_saved"), state.pop("_saved_step")
        self._built, self._observers, self._collective, self._module = False, [], None, None
        self._clipping = None  # the first steps are over
        super().__setstate__(state)
        self.defaults.pop("differentiable", None)  # torch adds it, and new groups would get it
        core = self._make_core(self._joined)
        core.load_state(_core.OptimizerState(core.state().version, step, tensors))
        self._install(core)
