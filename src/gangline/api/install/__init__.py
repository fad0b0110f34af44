"""Hand the program to machines that shall work for this server: a script, the wheel and the versions that go with it."""
