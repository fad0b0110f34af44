"""Train a LoRA: `python -m gangline.train.lora DIRECTORY`."""

import sys

from gangline.train.loading import loading

with loading():
    from gangline.train.lora.trainer import run_lora_trainer
    from gangline.train.program import main

if __name__ == "__main__":
    sys.exit(main(run_lora_trainer))
