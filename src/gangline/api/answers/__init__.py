"""What is answered: problems, streams of events, and the document that describes every answer."""
