"""Show a finished simulation at any moment of its virtual time: snapshots of its database, served read-only."""
