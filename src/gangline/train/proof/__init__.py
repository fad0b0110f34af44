"""What a machine proves of itself before it gets jobs: its libraries, its cards."""
