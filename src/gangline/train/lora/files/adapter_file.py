"""Read a LoRA's file with its modules found, without the base that it was trained on; and write one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from gangline.core.errors import BadInput
from gangline.core.models.families import Family
from gangline.core.models.lora_file_metadata import LayerSize, network_fields
from gangline.core.models.lora_modules import Module, family_of_header, module_of
from gangline.core.models.lora_names import KRONECKER, WeightRole, kohya_stem
from gangline.core.words import counted
from gangline.data.safetensors_header import read_header
from gangline.train.lora.export import kohya_hashes, write_safetensors
from gangline.train.lora.init_lora import LoraFile, open_lora
from gangline.train.lora.updates import KroneckerLayer
from gangline.train.tensors import Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFile:
    """A LoRA's file of a family: `stems` are its names for each module, `metadata` is what its header says."""

    path: Path
    file: LoraFile
    family: Family
    stems: Mapping[Module, str]
    metadata: Mapping[str, str]
    layers_per_block: int

    @property
    def name(self) -> str:
        return self.path.name

    def tensors_of(self, module: Module) -> Mapping[WeightRole, torch.Tensor]:
        return self.file.layers[self.stems[module]]

    def is_product(self, module: Module) -> bool:
        return self.file.is_product(self.tensors_of(module))

    def norms(self, module: Module) -> torch.Tensor | None:
        """Return a DoRA's norms as they lie in the file, None if the layer has none."""
        found = self.tensors_of(module)
        return found.get("magnitude", found.get("dora_scale"))

    def product(self, module: Module) -> KroneckerLayer:
        return self.file.product(self.stems[module], *module)

    def scale(self, module: Module) -> float:
        """Return alpha / rank of a layer of a LoRA, of its tensors or of PEFT's settings."""
        self.file.check_is_complete(self.stems[module])
        return self.file.scale(*module, self.tensors_of(module))

    def alpha(self, module: Module) -> float:
        """Return the alpha that gives the layer its scale. It is exactly the one in the file, if that has one."""
        if self.is_product(module):
            return self.product(module).alpha
        found = self.tensors_of(module)
        if "alpha" in found:
            self.file.check_is_complete(self.stems[module])
            return float(found["alpha"].reshape(-1)[0])
        return self.scale(module) * len(found["down"])

    def factors(self, module: Module) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `down` (rank, in · …) and `up` (out, rank) of a LoRA's layer in float32, without the scale."""
        self.file.check_is_complete(self.stems[module])
        found = self.tensors_of(module)
        down, up = found["down"].float().flatten(1), found["up"].float().flatten(1)
        if up.shape[1] != len(down):
            raise BadInput(
                f"{self.name} is damaged: {self.stems[module]} has rank {len(down)} and {up.shape[1]}",
                hint="download it again",
            )
        return down, up

    def check_is_no_dora(self, verb: str) -> None:
        if any(self.norms(module) is not None for module in self.stems):
            raise BadInput(
                f"{self.name} is a DoRA, which cannot be {verb}: its norms are those of the base's weights with it",
                hint="merge it into its base with `gangline lora merge LORA --base BASE`",
            )


def open_adapter(path: Path, family: Family | None = None, layers_per_block: int | None = None) -> AdapterFile:
    """Read a LoRA's file. `layers_per_block` is that of the base's U-Net, by default that of the family's published bases.

    Raise `BadInput` if it is damaged, not a LoRA, or for another model than `family`, which is found in the file if it is None.
    """
    header = read_header(path)
    file = open_lora(path, family)
    known = family or family_of_header(header)
    if known is None:
        raise BadInput(
            f"{path.name} does not show for which model it is", hint="name it with --family: sdxl, sd15 or sd2"
        )
    layers = layers_per_block or known.unet.layers_per_block
    found = {stem: module_of(stem, layers) for stem in file.layers}
    strange = [stem for stem, module in found.items() if module is None]
    if strange:
        raise BadInput(
            f"{path.name} has {counted(len(strange), 'layer')} of another model than {known.words}, such as {strange[0]}",
            hint="give a LoRA of Stable Diffusion 1, 2 or SDXL",
        )
    stems = {module: stem for stem, module in found.items() if module}
    if len(stems) < len(found):
        raise BadInput(f"{path.name} has some layers twice, under two names", hint="delete one of them")
    return AdapterFile(
        path=path, file=file, family=known, stems=stems, metadata=header.metadata, layers_per_block=layers
    )


def check_families(files: list[AdapterFile]) -> None:
    """Raise `BadInput` if the files are for models of different families."""
    first = files[0]
    for other in files[1:]:
        if other.family is not first.family:
            raise BadInput(
                f"{first.name} is a LoRA of {first.family.words}, and {other.name} one of {other.family.words}",
                hint="take LoRAs of one family",
            )


@dataclass(frozen=True, slots=True)
class NewLayer:
    """A layer to write: the tensors by role, with an alpha. A convolution's tensors have four dimensions."""

    tensors: Mapping[WeightRole, torch.Tensor]
    alpha: float

    @property
    def of_lycoris(self) -> bool:
        return not self.tensors.keys().isdisjoint((*KRONECKER, "magnitude", "dora_scale"))

    @property
    def size(self) -> LayerSize:
        found = self.tensors
        rank = next((len(found[role]) for role in ("down", "lokr_w2_b", "lokr_w1_b") if role in found), None)
        wide = any(
            tensor.shape[2:].numel() > 1 for role, tensor in found.items() if role in ("down", "lokr_w2", "lokr_t2")
        )
        return LayerSize(rank, self.alpha, wide)


KOHYA_ROLES = {"down": "lora_down.weight", "up": "lora_up.weight", "magnitude": "dora_scale"}


def kohya_file(layers: Mapping[Module, NewLayer], family: Family, layers_per_block: int) -> Tensors:
    """Return the tensors of a file with the names of kohya's scripts and LyCORIS, in the given precision."""
    tensors: Tensors = {}
    for (part, path), layer in layers.items():
        stem = kohya_stem(family, part, path, layers_per_block)
        for role, tensor in layer.tensors.items():
            tensors[f"{stem}.{KOHYA_ROLES.get(role, role)}"] = tensor
        tensors[f"{stem}.alpha"] = _alpha(layer)
    return tensors


def kohya_norms(norms: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Return a DoRA's norms of outputs in LyCORIS' shape, (out, 1) or (out, 1, 1, 1); norms of inputs, (1, in), stay as they are."""
    of_inputs = norms.dim() == 2 and norms.shape[0] == 1 and norms.shape[1] > 1
    return norms if of_inputs else norms.reshape(-1, *[1] * (down.dim() - 1))


def _alpha(layer: NewLayer) -> torch.Tensor:
    """Return the alpha in the precision of the weights, as kohya's scripts write it, else, if that changes it, in float32."""
    dtype = next(iter(layer.tensors.values())).dtype
    alpha = torch.tensor(layer.alpha, dtype=dtype if dtype.is_floating_point else torch.float32)
    return alpha if float(alpha) == layer.alpha else torch.tensor(layer.alpha, dtype=torch.float32)


def write_kohya_file(
    path: Path, layers: Mapping[Module, NewLayer], family: Family, layers_per_block: int, metadata: Mapping[str, str]
) -> None:
    """Write the file in kohya's names with `metadata`, kohya's fields about the network, and its hashes. It gets its name once it is
    complete."""
    tensors = kohya_file(layers, family, layers_per_block)
    of_lycoris = any(layer.of_lycoris for layer in layers.values())
    fields = network_fields((layer.size for layer in layers.values()), family, of_lycoris=of_lycoris)
    said = {**metadata, **fields}
    training = {name: value for name, value in said.items() if name.startswith("ss_")}
    hashes = kohya_hashes(tensors, training)
    write_whole(path, tensors, said | hashes | {"modelspec.hash_sha256": f"0x{hashes['sshs_model_hash']}"})


def write_whole(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """Write a safetensors file that gets its name once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_safetensors(partial, tensors, metadata)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
