"""The architecture of the tiny model, without weights: a folder in diffusers' layout from which training from scratch can start.

    python examples/tiny_sdxl/architecture.py tiny faces.lance things.lance

The vocabulary is CLIP's (MIT License, Copyright (c) 2021 OpenAI), cut to what the data sets' captions and some more words need: they
are split into the same tokens as with the full vocabulary, under other numbers.
"""

import argparse
import json
import re
from itertools import pairwise
from pathlib import Path

from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTokenizer

from gangline.compose.buckets import data_place
from gangline.data.dataset import open_data_set
from gangline.train.model.clip import END, START, clip_tokenizer

TOKENS_OF_A_PROMPT = 24
WIDTH = 64
CHANNELS = 48, 96
MORE_WORDS = "a an the photo picture painting drawing of on in at sks emoji style cute happy sad big small red green blue pink purple"
PARTS = {
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+", help="the data sets whose captions the vocabulary is to hold")
    asked = parser.parse_args()
    tables = [open_data_set(data_place(data)).table.to_table(columns=["captions"]) for data in asked.data]
    write_architecture(
        asked.folder, [text for table in tables for texts in table["captions"].to_pylist() for text in texts]
    )


def write_architecture(folder: Path, captions: list[str]) -> None:
    tokenizer = cut_tokenizer(
        {word for text in [*captions, MORE_WORDS] for word in re.findall(r"\w+|[^\w\s]+", text.lower())}
    )
    for name in ("tokenizer", "tokenizer_2"):
        tokenizer.save_pretrained(folder / name)
    for name, kind in (("text_encoder", "CLIPTextModel"), ("text_encoder_2", "CLIPTextModelWithProjection")):
        config = CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            projection_dim=WIDTH,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            architectures=[kind],
        )
        config.save_pretrained(folder / name)
    unet().save_config(folder / "unet")
    vae().save_config(folder / "vae")
    DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
    ).save_config(folder / "scheduler")
    index = {"_class_name": "StableDiffusionXLPipeline", "force_zeros_for_empty_prompt": True} | PARTS
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")


def unet() -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=CHANNELS,
        layers_per_block=1,
        cross_attention_dim=2 * WIDTH,
        attention_head_dim=tuple(
            channels // 16 for channels in CHANNELS
        ),  # SDXL's configuration gives the number of heads under this name
        norm_num_groups=16,
        transformer_layers_per_block=1,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=16,
        projection_class_embeddings_input_dim=WIDTH + 6 * 16,
    )


def vae() -> AutoencoderKL:
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 32, 64),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=64,
        mid_block_add_attention=False,
    )


def cut_tokenizer(words: set[str]) -> CLIPTokenizer:
    """CLIP's, with the merges alone that these words are made by, in their order, and every single byte."""
    whole = clip_tokenizer()
    model = json.loads(whole.backend_tokenizer.to_str())["model"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    rank = {merge: number for number, merge in enumerate(merges)}
    used = {merge for word in words for merge in merges_of(word, rank)}
    kept = [merge for merge in merges if merge in used]
    by_number = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokens = [*by_number[: 2 * 256], *(left + right for left, right in kept), START, END]
    return CLIPTokenizer(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=kept,
        bos_token=START,
        eos_token=END,
        unk_token=END,
        pad_token=END,
        model_max_length=TOKENS_OF_A_PROMPT,
    )


def merges_of(word: str, rank: dict[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Every merge on the word's way from its characters to its tokens (Sennrich et al. 2016)."""
    parts = [*word[:-1], f"{word[-1]}</w>"]
    used: set[tuple[str, str]] = set()
    while len(parts) > 1:
        pairs = list(pairwise(parts))
        best = min(pairs, key=lambda pair: rank.get(pair, len(rank)))
        if best not in rank:
            break
        used.add(best)
        joined: list[str] = []
        for part in parts:
            if joined and (joined[-1], part) == best:
                joined[-1] += part
            else:
                joined.append(part)
        parts = joined
    return used


if __name__ == "__main__":
    main()
