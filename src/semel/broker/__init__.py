"""A node: its parts wired together, the way from an API key to a handler, and the requests that wait."""
