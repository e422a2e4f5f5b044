"""How many of a library's architectures build and are right: its own list, at small sizes."""
