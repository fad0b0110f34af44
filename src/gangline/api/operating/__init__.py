"""The faces that a server has for those who operate it: health, readiness, metrics and the log of requests."""
