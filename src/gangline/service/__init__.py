"""Use cases: load, decide (gangline.core), apply under a guard. Knows ports, never an adapter; knows no HTTP."""
