"""The tests that a machine runs before it gets jobs: of its libraries and of its cards."""
