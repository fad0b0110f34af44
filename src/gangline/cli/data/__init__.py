"""Commands about data sets and base models."""
