"""HTTP routes: authenticate, call one use case, map its answer. Decides nothing; knows no adapter."""
