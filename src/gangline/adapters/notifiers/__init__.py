"""Who is told what happens."""
