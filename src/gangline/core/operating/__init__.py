"""What a server says of itself to those who operate it: whether it is ready, and its log."""
