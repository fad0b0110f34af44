"""What lies below a prefix: listed and removed, beside no command."""
