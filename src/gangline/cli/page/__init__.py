"""The page, as the command line opens it."""
