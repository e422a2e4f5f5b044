"""What a server needs around a program: bundles swapped under load, batches of requests."""
