"""The metadata log of a cluster on its way between nodes: what its leader answers, and how the others follow it.

Nothing here knows what the records mean: images are made of them in `controller`.
"""
