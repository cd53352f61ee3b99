"""What the rest of the program may touch of the world: clock, disk, network, chance and work in other processes.

`api` says what they are, `real` gives the real ones; the simulated twins live in `semel.sim`.
"""
