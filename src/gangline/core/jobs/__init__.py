"""Jobs: who gets which one, what a failure means, and why one waits."""
