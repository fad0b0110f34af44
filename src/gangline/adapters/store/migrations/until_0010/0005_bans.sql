-- Whose bans they are, so that a claim passes over all of a machine's at once.
CREATE INDEX ban_machine ON ban (machine, job);
