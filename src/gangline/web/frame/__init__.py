"""What every screen stands in: who looks at it, how it is rendered, its files, and its errors."""
