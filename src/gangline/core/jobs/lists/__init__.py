"""Lists of jobs: their filters, the index that answers a page, and the cursor of the next one."""
