"""Train a whole model: `python -m gangline.train.scratch DIRECTORY`."""

from typing import NoReturn

from gangline.train.loading import loading

with loading():
    from gangline.train import program
    from gangline.train.run.ranks import leave
    from gangline.train.scratch.trainer import train


def main() -> NoReturn:
    leave(program.main(train))


if __name__ == "__main__":
    main()
