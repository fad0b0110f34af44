"""Train a LoRA: `python -m gangline.train.lora DIRECTORY`."""

import sys

from gangline.train.loading import loading

with loading():
    from gangline.train.lora.trainer import train
    from gangline.train.program import main

if __name__ == "__main__":
    sys.exit(main(train))
