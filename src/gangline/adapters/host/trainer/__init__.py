"""Trainers as processes: how they start, what they can reach, and what they report."""
