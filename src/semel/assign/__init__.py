"""Which member of a group reads which partitions: pure functions, shared by the broker and the client."""
