"""The page: what a browser shows of a server, and what people do there. It asks the same use cases as the API, with the same access."""
