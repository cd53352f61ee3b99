"""The version of this program, which nodes and clients tell each other."""

VERSION = "0.1.0"
