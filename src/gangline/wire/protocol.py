"""The version of what goes over the wire. It rises when an older server would misunderstand; new fields do not raise it."""

VERSION = 2
HEADER = "Gangline-Protocol"
