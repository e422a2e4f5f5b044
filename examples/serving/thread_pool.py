"""A plain pool of threads: requests as lines of JSON in, answers as lines in the same order out.

python examples/serving/thread_pool.py model.aotc 4 < requests.jsonl
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from model import Model


def main(path, threads):
    """A call runs outside of Python's lock, so that threads run at once."""
    model = Model(path)
    with ThreadPoolExecutor(threads) as pool:
        for _, answer in pool.map(lambda line: model.answer(json.loads(line)), sys.stdin):
            print(json.dumps(answer))
    model.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
