"""Charts as SVG text, made of values alone: a timeline and a histogram. They know nothing of where the values are from."""
