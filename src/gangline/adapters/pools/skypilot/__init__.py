"""The `skypilot` pool driver: nodes are clusters of one machine that a SkyPilot API server makes on the clouds that it has accounts of.

The API server is asked over HTTP, so nothing of SkyPilot is installed beside Gangline. `driver.py` is the driver, `tracking.py` what it
knows of each cluster and what it asks next, `wire.py` the API over HTTP.
"""
