"""The routes of money: costs, budgets and what the fleet costs an hour."""
