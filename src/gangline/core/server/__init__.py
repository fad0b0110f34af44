"""What an operator sets for a server besides its policy: the limits of requests, pools, and the file that holds all of it."""
