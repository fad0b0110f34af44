"""Reports on sets of jobs: as a table, as lines for a spreadsheet, and as a page."""
