"""Move bytes between a machine and an object store, over HTTP."""
