"""The producer: records are gathered per partition, sent in batches, and written once, in order."""
