"""Small models that write captions: a tagger of colours, and captioners with random weights.

`python -m tests.train.caption.models` writes assets/tiny-tagger again.
"""

from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    BlipProcessor,
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from tests.conftest import ROOT

TINY = ROOT / "assets" / "tiny-tagger"
TAGS = (("general", 9), ("mostly_red", 0), ("mostly_green", 0), ("mostly_blue", 0), ("o_o", 0), ("papa_smurf", 4))
SIDE, STEEP, MIDDLE = 16, 0.2, 128.0
"""A tag of a colour has the probability sigmoid(STEEP * (mean of its channel - MIDDLE))."""
WORDS = ("a", "cat", "dog", "red", "blue", "sits", ".", "photo", "of")


def write_tagger(folder: Path, *, shape: tuple[str | int, ...] = ("N", SIDE, SIDE, 3)) -> Path:
    """Write a tagger of the WD family's shape: each tag looks at one mean, of blue, green and red."""
    folder.mkdir(parents=True, exist_ok=True)
    looks_at = (None, 2, 1, 0, None, 0)
    weights = [[STEEP if channel == looked else 0.0 for looked in looks_at] for channel in range(3)]
    offset = [4.0 if looked is None else -STEEP * MIDDLE for looked in looks_at]
    nodes = [
        helper.make_node("ReduceMean", ["pixels", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "weights"], ["products"]),
        helper.make_node("Add", ["products", "offset"], ["sums"]),
        helper.make_node("Sigmoid", ["sums"], ["probabilities"]),
    ]
    flat = [value for row in weights for value in row]
    graph = helper.make_graph(
        nodes,
        "tagger",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ("N", len(TAGS)))],
        [
            helper.make_tensor("axes", TensorProto.INT64, (2,), (1, 2)),
            helper.make_tensor("weights", TensorProto.FLOAT, (3, len(TAGS)), flat),
            helper.make_tensor("offset", TensorProto.FLOAT, (len(TAGS),), offset),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    lines = ["tag_id,name,category,count", *(f"{number},{name},{kind},1" for number, (name, kind) in enumerate(TAGS))]
    (folder / "selected_tags.csv").write_text("\n".join(lines) + "\n")
    return folder


def _tokenizer(*special: str) -> PreTrainedTokenizerFast:
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *special, *WORDS)
    made = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if "[DEC]" in special:  # BLIP's: a text stands between [CLS] and [SEP]
        around = [(each, names.index(each)) for each in ("[CLS]", "[SEP]")]
        made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="[CLS]", eos_token="[SEP]", additional_special_tokens=list(special), **named
    )


def write_blip(folder: Path) -> Path:
    """Write a captioner that goes on with a given text, and never ends a caption by itself."""
    torch.manual_seed(1)
    tokenizer = _tokenizer("[DEC]")
    text = {"vocab_size": len(tokenizer), "hidden_size": 16, "encoder_hidden_size": 16, "intermediate_size": 16}
    text |= {"num_hidden_layers": 1, "num_attention_heads": 2, "bos_token_id": 4, "sep_token_id": 3, "pad_token_id": 0}
    seen = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BlipConfig(text_config=text, vision_config=seen | {"image_size": 32, "patch_size": 16}, projection_dim=16)
    model = BlipForConditionalGeneration(config)
    with torch.no_grad():
        bias = model.text_decoder.cls.predictions.bias
        bias[: -len(WORDS)] = -100.0
    model.save_pretrained(folder)
    BlipProcessor(BlipImageProcessor(size={"height": 32, "width": 32}), tokenizer).save_pretrained(folder)
    return folder


CHAT = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def write_llava(folder: Path) -> Path:
    """Write a captioner that takes instructions."""
    torch.manual_seed(2)
    tokenizer = _tokenizer("<image>")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=3, pad_token_id=0, bos_token_id=2, **sizes)
    seen = CLIPVisionConfig(image_size=32, patch_size=16, projection_dim=16, **sizes)
    model = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=seen,
            text_config=text,
            image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
            vision_feature_layer=-1,
        )
    )
    model.save_pretrained(folder)
    pictures = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    LlavaProcessor(
        pictures,
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        chat_template=CHAT,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    write_tagger(TINY)
