"""Pure decisions and the types they speak of. Nothing here reads a clock, a file, a database or the environment."""
