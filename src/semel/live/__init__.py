"""The design, live: what clients say to a cluster and what it writes, shown while it happens."""
