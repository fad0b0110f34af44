"""The fleet: pools, nodes with their gauges, and what operators do with them."""
