"""What the optimiser, the gradient's norm and the average work on: each weight by itself, or the buffers that the weights are views of."""

from dataclasses import replace

import torch

from gangline.train.learning.flat import FlatWeights
from gangline.train.run.optimiser import WEIGHT_BY_WEIGHT, OptimizerState, ParameterGroup
from gangline.train.tensors import Tensors


class Buffers:
    """The weights of `groups`; if `flat`, each group's are views of one buffer. `wholes` are the buffers, or else the weights, by name.
    `stepped` are the groups as an optimiser of that name sees them."""

    def __init__(self, groups: list[ParameterGroup], optimizer: str, dtype: torch.dtype, *, flat: bool) -> None:
        self._flats = {
            f"group {number}": FlatWeights(group.weights, dtype) for number, group in enumerate(groups) if flat
        }
        self.wholes: dict[str, torch.nn.Parameter] = {name: each.whole for name, each in self._flats.items()}
        self.stepped = groups
        if not flat:
            self.wholes = {name: weight for group in groups for name, weight in group.weights.items()}
        elif optimizer not in WEIGHT_BY_WEIGHT:
            pairs = zip(groups, self.wholes.items(), strict=True)
            self.stepped = [replace(group, weights={name: whole}) for group, (name, whole) in pairs]

    @property
    def owners(self) -> dict[str, torch.nn.Parameter]:
        """What the optimiser has a state of, by name."""
        return {name: weight for group in self.stepped for name, weight in group.weights.items()}

    @property
    def gradients(self) -> list[torch.Tensor]:
        """The gradients of `wholes` that have one; those of buffers are always the same tensors."""
        return [whole.grad for whole in self.wholes.values() if whole.grad is not None]

    def clear_gradients(self) -> None:
        for whole in self.wholes.values():
            if whole.grad is not None and self._flats:
                whole.grad.zero_()
            else:
                whole.grad = None

    def refresh(self) -> None:
        """Bring the copies in low precision up to date, after weights changed."""
        for flat in self._flats.values():
            flat.refresh()

    @property
    def low(self) -> Tensors:
        """Each weight in the dtype in which the network computes, as a view of a buffer."""
        return self.by_weight({name: flat.low for name, flat in self._flats.items()})

    @property
    def sums(self) -> Tensors:
        """The gradient of each weight, as a view of a buffer, to be added to."""
        return self.by_weight({name: flat.gradient for name, flat in self._flats.items()})

    def by_weight(self, tensors: Tensors) -> Tensors:
        """Return tensors of `wholes` as those of weights."""
        found = {name: tensor for name, tensor in tensors.items() if name not in self._flats}
        for name, flat in self._flats.items():
            found |= flat.views(tensors[name]) if name in tensors else {}
        return found

    def by_whole(self, tensors: Tensors) -> Tensors:
        """Return tensors of weights as those of `wholes`."""
        if not self._flats or not tensors:
            return tensors
        return {name: flat.joined(tensors) for name, flat in self._flats.items()}

    def state_by_weight(self, state: OptimizerState) -> OptimizerState:
        """Return an optimiser's state with a tensor for each weight, where it has one element for each of a buffer."""
        found = Tensors()
        for key, tensor in state.tensors.items():
            owner, kind = key.rsplit("/", 1)
            flat = self._flats.get(owner)
            if flat and tensor.shape == flat.whole.shape:
                found |= {f"{name}/{kind}": view for name, view in flat.views(tensor).items()}
            else:
                found[key] = tensor
        return replace(state, tensors=found)

    def state_by_whole(self, state: OptimizerState) -> OptimizerState:
        """Return the state for an optimiser of `stepped`; the inverse of `state_by_weight`."""
        found = dict(state.tensors)
        for whole in self.owners.keys() & self._flats.keys():
            flat = self._flats[whole]
            first = f"{flat.names[0]}/"
            for kind in [key.removeprefix(first) for key in found if key.startswith(first)]:
                found[f"{whole}/{kind}"] = flat.joined({name: found.pop(f"{name}/{kind}") for name in flat.names})
        return replace(state, tensors=found)
