"""The bytes that jobs use and make: uploads, inputs, bases, prepared files, deliveries."""
