"""The `kubernetes` pool driver: a node is one Pod of a cluster.

`template.py` reads the Pod template of the server's owner and says what it may not have, `manifest.py` makes the Pod of a rental of it.
`wire.py` asks the API server through the official client, `answers.py` reads what it says of Pods, `seen.py` remembers their ends.
"""
