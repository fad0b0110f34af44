"""Read what happened to one job: the sentence that says how it stands, and its timeline."""
