"""The zoo: models of public libraries, made from their configs with random weights.

Every model is one row of `table.py`. `python -m benchmarks.zoo` builds, checks and times them.
"""
