"""What happened to one job, from its submission until now: one sentence, a timeline, and dollars over time."""
