"""The version of what goes over the wire. It rises when an older server would misunderstand; new fields do not raise it."""

VERSION = 1
HEADER = "Gangline-Protocol"
