"""Pipelines from a file: read, checked, run, watched. `semel pipeline` is the command; nothing here needs Spark until
a pipeline runs."""
