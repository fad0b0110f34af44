"""Pure decisions and the types that they work on. Nothing here reads a clock, a file, a database or the environment."""
