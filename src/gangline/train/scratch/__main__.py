"""Train a whole model: `python -m gangline.train.scratch DIRECTORY`."""

import sys

from gangline.train.program import main
from gangline.train.scratch.trainer import train

if __name__ == "__main__":
    sys.exit(main(train))
