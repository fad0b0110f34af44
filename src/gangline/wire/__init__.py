"""HTTP messages and the typed clients for the worker, the command line and users' Python code."""
