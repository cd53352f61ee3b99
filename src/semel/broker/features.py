"""Which features this program supports, each with its least and greatest level; the cluster finalizes the greatest.

metadata.version 7 is the level of Kafka 3.3: the versions in which the metadata records are written. Kafka 4 begins
there, too.
"""

SUPPORTED_FEATURES = {"metadata.version": (7, 7), "group.version": (0, 1), "transaction.version": (0, 2)}
