"""The interfaces that the core requires of the outside world. A port, its adapter and its contract test have the same name."""
