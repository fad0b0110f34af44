"""Trainers. The only code that imports torch; knows a directory (the trainer contract), neither service nor network."""
