from semel.host.api import Buffer

compiled: bool

def last_up_to(entries: Buffer, most: int) -> int: ...
