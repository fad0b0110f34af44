"""What the edges must offer. A port, its adapter and its contract test have the same name."""
