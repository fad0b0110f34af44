"""Trainers. Only this package imports torch. It knows a directory (the trainer contract), but neither the service nor the network."""
