"""One module per API: its request and its response in every version served. Loaded on first use by `wire.apis`."""
