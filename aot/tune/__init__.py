"""tune: which configuration each kernel is compiled with, and the record of it."""
