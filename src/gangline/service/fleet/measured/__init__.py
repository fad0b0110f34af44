"""What nodes measure of themselves."""
