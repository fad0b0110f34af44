"""What every trainer shares: its directory, ranks, numerics, meters and optimisers."""
