"""What `load` returns, and a call of it."""
