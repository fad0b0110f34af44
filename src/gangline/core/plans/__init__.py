"""Plans of jobs: what one will do, take and cost, from values alone. The command line and the server make the same ones."""
