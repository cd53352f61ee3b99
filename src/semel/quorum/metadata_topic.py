"""The name of the metadata log, which is a topic of one partition that no metadata tells of."""

TOPIC = "__cluster_metadata"
PARTITION = 0
TOPIC_ID = bytes(15) + b"\x01"
TOPIC_ID_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"
NO_LEADER = -1
