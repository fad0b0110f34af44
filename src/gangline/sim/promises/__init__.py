"""What is held over everything that the simulated store and object store say: kept, deleted, billed, ended."""
