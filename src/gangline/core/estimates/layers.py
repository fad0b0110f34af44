"""List the layers of a U-Net, a text encoder and a VAE by their names in diffusers and transformers, with their sizes for one sample. It
is arithmetic without torch: tests compare it with the libraries' models."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Literal, ParamSpec

from gangline.core.models.architecture import Autoencoder, TextTransformer, UNet

LATENT_SIDE = 8
"""The side in pixels of the square that one latent covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A linear layer or a convolution of `kernel` × `kernel`, computed at `places` positions; or a norm over as many.

    `on` is its input: `time` is one vector per sample, and a LoRA trains nothing before it. `block` is the module that gradient
    checkpointing recomputes as one.
    """

    name: str
    kind: Literal["linear", "conv", "norm"]
    inputs: int
    outputs: int
    places: int
    block: str
    kernel: int = 1
    bias: bool = True
    on: Literal["image", "text", "time"] = "image"

    @property
    def weights(self) -> int:
        if self.kind == "norm":
            return 2 * self.outputs
        return self.inputs * self.outputs * self.kernel**2 + (self.outputs if self.bias else 0)

    @property
    def flops(self) -> int:
        """Return the FLOP of its forward pass."""
        return 0 if self.kind == "norm" else 2 * self.inputs * self.outputs * self.kernel**2 * self.places


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """An attention of `queries` positions over `keys`; `width` is that of all heads together."""

    name: str
    queries: int
    keys: int
    width: int
    block: str
    on: Literal["image", "text"] = "image"

    @property
    def weights(self) -> int:
        return 0

    @property
    def flops(self) -> int:
        """Return the FLOP of its two products in the forward pass."""
        return 4 * self.queries * self.keys * self.width


Op = Layer | Attention
_Given = ParamSpec("_Given")
MODELS_MAX = 32
"""Models of one resolution whose layers are remembered: an estimate counts them many times, and those of SDXL are 2,000."""


def _remembered(of: Callable[_Given, Iterator[Op]]) -> Callable[_Given, tuple[Op, ...]]:
    @lru_cache(maxsize=MODELS_MAX)
    @wraps(of)
    def layers(*given: _Given.args, **options: _Given.kwargs) -> tuple[Op, ...]:
        return tuple(of(*given, **options))

    return layers  # type: ignore[return-value]


def sides(resolution: int, channels: tuple[int, ...]) -> list[int]:
    """Return the side of a square image's latents at the input of each block; each block but the last halves it."""
    found = [max(1, resolution // LATENT_SIDE)]
    for _ in channels[1:]:
        found.append(-(-found[-1] // 2))
    return found


@_remembered
def unet_layers(unet: UNet, resolution: int, tokens: int = 77) -> Iterator[Op]:
    """Yield a U-Net's layers for one square sample, in the order of computation."""
    heights = sides(resolution, unet.channels)
    first, embedded = unet.channels[0], 4 * unet.channels[0]
    yield from _embedding("time_embedding", first, embedded)
    if unet.sizes_width:
        yield from _embedding("add_embedding", unet.sizes_width, embedded)
    yield _conv("conv_in", unet.latent_channels, first, heights[0] ** 2, "conv_in")
    skips = [first]
    width = first
    for number, (channels, depth, side) in enumerate(zip(unet.channels, unet.depths, heights, strict=True)):
        block = f"down_blocks.{number}"
        for layer in range(unet.layers_per_block):
            yield from _resnet(f"{block}.resnets.{layer}", width, channels, side**2, embedded)
            yield from _transformer(unet, f"{block}.attentions.{layer}", channels, depth, side**2, tokens)
            width = channels
            skips.append(width)
        if number < len(unet.channels) - 1:
            name = f"{block}.downsamplers.0.conv"
            yield _conv(name, width, width, heights[number + 1] ** 2, name)
            skips.append(width)
    places = heights[-1] ** 2
    yield from _resnet("mid_block.resnets.0", width, width, places, embedded)
    yield from _transformer(unet, "mid_block.attentions.0", width, unet.middle_depth, places, tokens)
    yield from _resnet("mid_block.resnets.1", width, width, places, embedded)
    rising = list(zip(unet.channels, unet.depths, heights, strict=True))[::-1]
    for number, (channels, depth, side) in enumerate(rising):
        block = f"up_blocks.{number}"
        for layer in range(unet.layers_per_block + 1):
            yield from _resnet(f"{block}.resnets.{layer}", width + skips.pop(), channels, side**2, embedded)
            yield from _transformer(unet, f"{block}.attentions.{layer}", channels, depth, side**2, tokens)
            width = channels
        if number < len(rising) - 1:
            name = f"{block}.upsamplers.0.conv"
            yield _conv(name, width, width, rising[number + 1][2] ** 2, name)
    yield _norm("conv_norm_out", width, heights[0] ** 2, "conv_norm_out")
    yield _conv("conv_out", width, unet.latent_channels, heights[0] ** 2, "conv_out")


@_remembered
def text_layers(text: TextTransformer, part: str = "text_model") -> Iterator[Op]:
    """Yield a text encoder's layers for one text of `text.tokens` tokens, without token and position embeddings, which are look-ups."""
    tokens = text.tokens
    for number in range(text.layers):
        block = f"{part}.encoder.layers.{number}"
        yield _norm(f"{block}.layer_norm1", text.width, tokens, block, "text")
        for name in ("q_proj", "k_proj", "v_proj"):
            yield _linear(f"{block}.self_attn.{name}", text.width, text.width, tokens, block, on="text")
        yield Attention(
            name=f"{block}.self_attn", queries=tokens, keys=tokens, width=text.width, block=block, on="text"
        )
        yield _linear(f"{block}.self_attn.out_proj", text.width, text.width, tokens, block, on="text")
        yield _norm(f"{block}.layer_norm2", text.width, tokens, block, "text")
        yield _linear(f"{block}.mlp.fc1", text.width, text.inner, tokens, block, on="text")
        yield _linear(f"{block}.mlp.fc2", text.inner, text.width, tokens, block, on="text")
    yield _norm(f"{part}.final_layer_norm", text.width, tokens, "final_layer_norm", "text")
    if text.projection:
        yield _linear("text_projection", text.width, text.projection, 1, "text_projection", on="text", bias=False)


def embedding_weights(text: TextTransformer) -> int:
    """Return the number of weights in token and position embeddings."""
    return (text.words + text.tokens) * text.width


@_remembered
def encoder_layers(vae: Autoencoder, resolution: int) -> Iterator[Op]:
    """Yield the layers of a VAE's encoder for one square image."""
    side, width = resolution, vae.channels[0]
    yield _conv("encoder.conv_in", 3, width, side**2, "encoder.conv_in")
    for number, channels in enumerate(vae.channels):
        for layer in range(vae.layers_per_block):
            yield from _resnet(f"encoder.down_blocks.{number}.resnets.{layer}", width, channels, side**2, None)
            width = channels
        if number < len(vae.channels) - 1:
            side = side // 2
            name = f"encoder.down_blocks.{number}.downsamplers.0.conv"
            yield _conv(name, width, width, side**2, name)
    yield from _middle("encoder.mid_block", width, side**2)
    yield _norm("encoder.conv_norm_out", width, side**2, "encoder.conv_norm_out")
    yield _conv("encoder.conv_out", width, 2 * vae.latent_channels, side**2, "encoder.conv_out")
    yield _conv("quant_conv", 2 * vae.latent_channels, 2 * vae.latent_channels, side**2, "quant_conv", kernel=1)


@_remembered
def decoder_layers(vae: Autoencoder, resolution: int) -> Iterator[Op]:
    """Yield the layers of a VAE's decoder for one square image."""
    rising = vae.channels[::-1]
    side, width = resolution // 2 ** (len(rising) - 1), rising[0]
    yield _conv("post_quant_conv", vae.latent_channels, vae.latent_channels, side**2, "post_quant_conv", kernel=1)
    yield _conv("decoder.conv_in", vae.latent_channels, width, side**2, "decoder.conv_in")
    yield from _middle("decoder.mid_block", width, side**2)
    for number, channels in enumerate(rising):
        for layer in range(vae.layers_per_block + 1):
            yield from _resnet(f"decoder.up_blocks.{number}.resnets.{layer}", width, channels, side**2, None)
            width = channels
        if number < len(rising) - 1:
            side = side * 2
            name = f"decoder.up_blocks.{number}.upsamplers.0.conv"
            yield _conv(name, width, width, side**2, name)
    yield _norm("decoder.conv_norm_out", width, side**2, "decoder.conv_norm_out")
    yield _conv("decoder.conv_out", width, 3, side**2, "decoder.conv_out")


def _embedding(name: str, inputs: int, outputs: int) -> Iterator[Op]:
    yield _linear(f"{name}.linear_1", inputs, outputs, 1, name, on="time")
    yield _linear(f"{name}.linear_2", outputs, outputs, 1, name, on="time")


def _resnet(name: str, inputs: int, outputs: int, places: int, embedded: int | None) -> Iterator[Op]:
    """Yield the layers of a resnet block. `embedded` is the width of the time embedding, None in a VAE, which has none."""
    yield _norm(f"{name}.norm1", inputs, places, name)
    yield _conv(f"{name}.conv1", inputs, outputs, places, name)
    if embedded:
        yield _linear(f"{name}.time_emb_proj", embedded, outputs, 1, name, on="time")
    yield _norm(f"{name}.norm2", outputs, places, name)
    yield _conv(f"{name}.conv2", outputs, outputs, places, name)
    if inputs != outputs:
        yield _conv(f"{name}.conv_shortcut", inputs, outputs, places, name, kernel=1)


def _transformer(unet: UNet, name: str, width: int, depth: int, places: int, tokens: int) -> Iterator[Op]:
    if not depth:
        return
    project = _linear if unet.linear_projection else _pointwise
    yield _norm(f"{name}.norm", width, places, name)
    yield project(f"{name}.proj_in", width, width, places, name)
    for number in range(depth):
        block = f"{name}.transformer_blocks.{number}"
        for own, keys, reads in (("attn1", places, width), ("attn2", tokens, unet.text_width)):
            on = "image" if own == "attn1" else "text"
            yield _norm(f"{block}.norm{own[-1]}", width, places, block)
            yield _linear(f"{block}.{own}.to_q", width, width, places, block, bias=False)
            yield _linear(f"{block}.{own}.to_k", reads, width, keys, block, bias=False, on=on)
            yield _linear(f"{block}.{own}.to_v", reads, width, keys, block, bias=False, on=on)
            yield Attention(name=f"{block}.{own}", queries=places, keys=keys, width=width, block=block)
            yield _linear(f"{block}.{own}.to_out.0", width, width, places, block)
        yield _norm(f"{block}.norm3", width, places, block)
        yield _linear(f"{block}.ff.net.0.proj", width, 8 * width, places, block)
        yield _linear(f"{block}.ff.net.2", 4 * width, width, places, block)
    yield project(f"{name}.proj_out", width, width, places, name)


def _middle(name: str, width: int, places: int) -> Iterator[Op]:
    """Yield the layers of a VAE's middle block, whose attention has one head over all positions."""
    yield from _resnet(f"{name}.resnets.0", width, width, places, None)
    attention = f"{name}.attentions.0"
    yield _norm(f"{attention}.group_norm", width, places, attention)
    for part in ("to_q", "to_k", "to_v"):
        yield _linear(f"{attention}.{part}", width, width, places, attention)
    yield Attention(name=attention, queries=places, keys=places, width=width, block=attention)
    yield _linear(f"{attention}.to_out.0", width, width, places, attention)
    yield from _resnet(f"{name}.resnets.1", width, width, places, None)


def _linear(
    name: str,
    inputs: int,
    outputs: int,
    places: int,
    block: str,
    *,
    bias: bool = True,
    on: Literal["image", "text", "time"] = "image",
) -> Layer:
    return Layer(name=name, kind="linear", inputs=inputs, outputs=outputs, places=places, block=block, bias=bias, on=on)


def _conv(name: str, inputs: int, outputs: int, places: int, block: str, *, kernel: int = 3) -> Layer:
    return Layer(name=name, kind="conv", inputs=inputs, outputs=outputs, places=places, block=block, kernel=kernel)


def _pointwise(name: str, inputs: int, outputs: int, places: int, block: str) -> Layer:
    return _conv(name, inputs, outputs, places, block, kernel=1)


def _norm(name: str, width: int, places: int, block: str, on: Literal["image", "text"] = "image") -> Layer:
    return Layer(name=name, kind="norm", inputs=width, outputs=width, places=places, block=block, on=on)
