"""What keeps secrets from those who may read the database."""
