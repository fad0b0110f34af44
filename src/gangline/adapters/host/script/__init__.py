"""A user's script on this machine: its process, and the folder in which it saves."""
