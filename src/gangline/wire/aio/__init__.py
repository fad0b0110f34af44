"""The asynchronous client. The folder `client` beside it is made of this one: `python -m tests.wire.sync_client` writes it."""
