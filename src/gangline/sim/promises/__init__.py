"""Check promises over the whole database and object store: what is kept, deleted, billed and ended."""
