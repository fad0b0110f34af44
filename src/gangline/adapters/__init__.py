"""Adapters: each module keeps the promises of a port for one external system. They know no service and no rule of it."""
