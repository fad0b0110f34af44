"""The `salad` pool driver: nodes are container groups of one replica on SaladCloud, whose machines are other people's PCs.

Salad replaces a machine that vanishes by itself: the group and its name stay, machine and instance are others. `driver.py` is the driver,
`tracking.py` what it knows of each group and what it asks next, `wire.py` the API over HTTP. `metadata.py` runs on a node.
"""
