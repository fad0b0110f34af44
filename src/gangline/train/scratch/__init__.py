"""The trainer of whole models: `python -m gangline.train.scratch DIRECTORY`."""
