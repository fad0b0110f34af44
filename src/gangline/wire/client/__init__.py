"""The synchronous client, made of the asynchronous one in `aio`: `python -m tests.wire.sync_client` writes its files again."""
