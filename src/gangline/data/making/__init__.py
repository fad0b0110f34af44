"""Making a data set: sources in, a Lance table out."""
