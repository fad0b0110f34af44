"""Bytes that jobs use and make: uploads, inputs, bases, prepared files."""
