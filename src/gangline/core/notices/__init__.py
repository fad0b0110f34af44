"""Decide what a project reports to the outside, to whom, when and in which words."""
