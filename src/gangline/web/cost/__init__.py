"""What was spent, on what, and which budgets there are."""
