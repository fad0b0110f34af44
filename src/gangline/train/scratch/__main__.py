"""Train a whole model: `python -m gangline.train.scratch DIRECTORY`."""

from typing import NoReturn

from gangline.train.loading import loading

with loading():
    from gangline.train import program
    from gangline.train.run.ranks import exit_process
    from gangline.train.scratch.trainer import run_scratch_trainer


def main() -> NoReturn:
    exit_process(program.main(run_scratch_trainer))


if __name__ == "__main__":
    main()
