"""The screen of one job: how it stands, what it did, what it made, and what can be done with it."""
