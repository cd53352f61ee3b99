"""Coordinators: state machines over partitions of an internal topic. Decide, append, replay, reply when committed."""
