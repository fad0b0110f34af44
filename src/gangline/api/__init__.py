"""The HTTP routes: they authenticate, call one use case and convert its answer. They decide nothing and know no adapter."""
