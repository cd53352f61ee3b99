"""Requests and answers over connections: accept, frame, order, reply. Knows frames, not what is in them."""
