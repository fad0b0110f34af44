"""The command line: one module for one noun. Data goes to standard output, everything else to standard error."""
