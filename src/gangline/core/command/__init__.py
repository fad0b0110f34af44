"""What `gangline exec` decides. It knows no service."""
