"""What a set of jobs took: pure functions over rows of the ledger and of attempts, for a real server and for the simulator alike."""
