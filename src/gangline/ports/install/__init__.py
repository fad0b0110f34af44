"""Ports of handing the program to machines that shall run it."""
