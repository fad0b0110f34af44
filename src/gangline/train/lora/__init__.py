"""The LoRA trainer: `python -m gangline.train.lora DIRECTORY`."""
