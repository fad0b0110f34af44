"""The version of the protocol. It rises when an older server would misunderstand a request; new fields do not raise it."""

VERSION = 2
HEADER = "Gangline-Protocol"
