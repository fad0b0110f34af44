"""The version of this Gangline: a trainer writes it into its checkpoints, and imports nothing else of the package for it."""

VERSION = "0.3.0.dev0"
