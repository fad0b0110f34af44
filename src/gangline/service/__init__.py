"""The use cases: load, decide (in `gangline.core`), apply under a guard. They know ports, but no adapter and no HTTP."""
