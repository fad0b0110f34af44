"""The composition roots, one module for each program: they alone choose adapters, by what the environment and the options say.

Beside the programs (`server`, `worker`, `exec`, and `client`, the command line's requests) stand what several of them ask:
`settings`, `access` (a server's secrets), `buckets` (places and their keys), `hub` and `machine`. The simulator is a root of its own.
"""

import logging

# Below that it writes down whole URLs, and a signed one opens something. It stands here so that no program does without.
logging.getLogger("httpx").setLevel(logging.WARNING)
