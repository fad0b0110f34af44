"""A script for two processes: saves once."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
model, optimiser = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
accelerator.save_state(str(Path(sys.argv[1]) / "checkpoint-1"))
accelerator.wait_for_everyone()
accelerator.end_training()
