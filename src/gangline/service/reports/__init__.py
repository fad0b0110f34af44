"""Reports on sets of jobs, of one project or of everything that a store has."""
