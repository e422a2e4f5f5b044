"""Arrays in and out: element types, DLPack, buffers, the numbers and shapes of a port."""
