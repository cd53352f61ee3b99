"""Cluster metadata as a log of Kafka's own records, replayed into an image; decisions append, only replay changes."""
