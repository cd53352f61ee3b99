"""What is done to a cluster while it works: connections cut and delayed by a proxy, nodes killed and paused."""
