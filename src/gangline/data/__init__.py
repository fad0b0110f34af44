"""Image data sets. Knows files and pixels; knows neither the service nor torch."""
