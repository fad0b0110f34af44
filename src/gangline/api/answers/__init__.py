"""Answers: problems, streams of events, and the document that describes them all."""
