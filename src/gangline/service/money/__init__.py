"""Bills: the rows of the ledger, and the writes that add them."""
