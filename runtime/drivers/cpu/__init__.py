"""The CPU driver: `driver.py` is what the table of drivers loads, the others are its parts."""
