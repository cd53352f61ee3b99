"""Nodes as processes of this machine: for `semel cluster start`, for tests, and for `semel check --cluster local`."""
