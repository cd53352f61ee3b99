"""Looks into the files of a log without a node: what stands in them, and whether they agree. Never writes."""
