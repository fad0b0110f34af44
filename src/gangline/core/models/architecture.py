"""Read the sizes of a model's parts from their config.json, as far as memory and computation follow from them. It opens no files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DOWN_WITH_ATTENTION = "CrossAttnDownBlock2D"


@dataclass(frozen=True, slots=True, kw_only=True)
class UNet:
    """The sizes of a U-Net.

    `channels` are those of each down block, `depths` the transformer blocks in each of its attention modules (0 for a block without),
    `middle_depth` those in the middle block. If `linear_projection` is true, the projections into and out of attention modules are linear
    layers, else convolutions. `sizes_width` is the width of the pooled text and size conditioning, 0 for none.
    """

    channels: tuple[int, ...]
    depths: tuple[int, ...]
    middle_depth: int
    layers_per_block: int = 2
    text_width: int
    linear_projection: bool
    sizes_width: int = 0
    latent_channels: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTransformer:
    """A CLIP text encoder with `layers` layers. `projection` is the width of its pooled output, 0 if it has none."""

    width: int
    layers: int
    inner: int
    words: int = 49_408
    tokens: int = 77
    projection: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoencoder:
    """The sizes of a VAE: `channels` are those of each block of its encoder."""

    channels: tuple[int, ...]
    layers_per_block: int = 2
    latent_channels: int = 4


PUBLISHED_VAE = Autoencoder(channels=(128, 256, 512, 512))
"""The architecture of every family's VAE; the weights differ."""


def unet_of_config(config: Mapping[str, Any]) -> UNet:
    """Return the sizes from a U-Net's config.json as diffusers writes it."""
    channels = tuple(config["block_out_channels"])
    depths = config.get("transformer_layers_per_block") or 1
    each = tuple(depths) if isinstance(depths, list | tuple) else (depths,) * len(channels)
    kinds = config["down_block_types"]
    return UNet(
        channels=channels,
        depths=tuple(depth if kind == DOWN_WITH_ATTENTION else 0 for depth, kind in zip(each, kinds, strict=True)),
        middle_depth=each[-1],
        layers_per_block=config["layers_per_block"],
        text_width=config["cross_attention_dim"],
        linear_projection=bool(config.get("use_linear_projection")),
        sizes_width=config.get("projection_class_embeddings_input_dim") or 0,
        latent_channels=config["in_channels"],
    )


def text_of_config(config: Mapping[str, Any], *, pooled: bool) -> TextTransformer:
    """Return the sizes from a text encoder's config.json as transformers writes it."""
    return TextTransformer(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        inner=config["intermediate_size"],
        words=config["vocab_size"],
        tokens=config["max_position_embeddings"],
        projection=config["projection_dim"] if pooled else 0,
    )
