"""Keep open pages up to date: what changed is looked up once, rendered once, and sent to all who look at the same screen."""
