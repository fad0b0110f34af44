"""Who wins where: every offer alone, the service's own choice among all, and a bound, over a sweep of interruption rates."""
