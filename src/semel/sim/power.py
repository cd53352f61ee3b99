"""Loss of power, as the code of a simulated node meets it."""


class PowerLost(BaseException):
    """The node is dead: raised by the call that it died in and by every later call to its disk.

    Not an Exception, so that no error handling of the node's own code carries on.
    """
