"""One file for one thing of the world. Adapters keep the promises of a port and know nothing of each other."""
