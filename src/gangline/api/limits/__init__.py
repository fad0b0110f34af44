"""Limits that apply before a request is parsed: the size of its body, the time that it takes, its key, and the rate of its sender."""
