"""Sessions of the page, as a browser sends them."""
