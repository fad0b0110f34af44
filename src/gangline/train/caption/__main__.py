"""Write captions for photos: `python -m gangline.train.caption DIRECTORY`."""

import sys

from gangline.train.loading import loading

with loading():
    from gangline.train.caption.job import write_captions
    from gangline.train.program import main

if __name__ == "__main__":
    sys.exit(main(write_captions))
