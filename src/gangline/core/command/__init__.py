"""The decisions of `gangline exec`, as pure functions. They know no service, no file system and no store."""
