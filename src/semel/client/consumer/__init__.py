"""The consumer: group membership, fetching, positions and offsets."""
