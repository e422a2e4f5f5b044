"""The same attacks on aotc's cache and bundles, and on formats beside them: `scripts/attack`.

`systems.py` has the systems: how an artifact of each is made, used and altered. `attempts.py` has
the attacks, one function each, `trial.py` a trial in a process of its own, `page.py` the table.
"""
