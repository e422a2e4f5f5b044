"""What every recipe here serves: a bundle that takes JSON and answers JSON, with neither torch nor
numpy.

The body of a request is an object of the program's inputs by name, as nested lists:
`{"ids": [[7, 8, 9]]}`; the answer is `{"outputs": …}`, or `{"error": …}` with a status.
"""

import array
import logging
from functools import reduce
from operator import mul

from aotc import runtime
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.errors import (
    BatcherClosed,
    DeadlinePassed,
    NotBatched,
    Overloaded,
    ProgramClosed,
)

log = logging.getLogger("serving")


class Model:
    """A deployment, and where its calls can be joined a batcher.

    warm_up: requests that are answered before the model is ready, and before one that takes its
    place serves; max_batch: requests of a call, 1 for a call each; timeout_s: of a request.
    """

    def __init__(self, path, warm_up=(), max_batch=1, timeout_s=10.0):
        self.warm_up, self.timeout_s = list(warm_up), timeout_s
        self.deployment = runtime.Deployment(path, stats=True)
        self._warm(self.deployment.program)
        self.batcher = None
        if max_batch > 1:
            try:
                self.batcher = runtime.Batcher(self.deployment, max_batch, max_queue=256)
            except NotBatched as error:
                log.warning("%s", error)

    def _warm(self, program):
        for body in self.warm_up * 2:  # on a GPU the second call at given sizes makes a graph
            program(**arrays_of(body, program.inputs))

    def answer(self, body):
        """(status, answer) of a request; to be called in any thread."""
        try:
            arrays = arrays_of(body, self.deployment.program.inputs)
            if self.batcher is None:
                return 200, {"outputs": lists_of(self.deployment(**arrays))}
            return 200, {"outputs": lists_of(self.batcher(**arrays, timeout_s=self.timeout_s))}
        except Exception as error:
            return refused(error)

    async def answer_async(self, body):
        """The same in asyncio; needs a batcher, whose thread does the work."""
        try:
            arrays = arrays_of(body, self.deployment.program.inputs)
            found = await self.batcher.call_async(**arrays, timeout_s=self.timeout_s)
            return 200, {"outputs": lists_of(found)}
        except Exception as error:
            return refused(error)

    def swap(self, path):
        """Have another bundle serve; raises what `Deployment.swap` raises, the old one goes on."""
        self.deployment.swap(path, warm_up=self._warm)

    def is_ready(self):
        return not self.deployment.closed

    def metrics(self):
        """Text for Prometheus."""
        return runtime.metrics_text({"default": self.batcher or self.deployment})

    def close(self):
        """Answer what waits, then free everything."""
        if self.batcher is not None:
            self.batcher.close()
        self.deployment.drain(self.timeout_s)


def refused(error):
    """(status, answer): what the client can change in words, of all else nothing but the log."""
    if isinstance(error, (BatcherClosed, ProgramClosed)):
        return 503, {"error": "the server ends"}
    if isinstance(error, (runtime.InputError, ValueError)):
        return 400, {"error": getattr(error, "message", str(error))}  # the hint is for the builder
    if isinstance(error, Overloaded):
        return 503, {"error": "too many requests wait"}
    if isinstance(error, DeadlinePassed):
        return 504, {"error": "no answer in time"}
    log.error("a request failed", exc_info=error)
    return 500, {"error": "the model failed"}


def arrays_of(body, inputs):
    """Arrays by the inputs' names; raises ValueError for what is not JSON of that kind."""
    expected = ", ".join(f"`{each.name}`" for each in inputs)
    if not isinstance(body, dict):
        raise ValueError(f"the body is no object, expected one with {expected}")
    if set(body) != {each.name for each in inputs}:
        found = ", ".join(f"`{name[:50]}`" for name in body) or "nothing"
        raise ValueError(f"the body has {found}, expected {expected}")
    return {each.name: _array_of(body[each.name], each) for each in inputs}


def _array_of(value, spec):
    shape, flat = [], [value]
    for _ in spec.shape:
        if not all(isinstance(each, list) and len(each) == len(flat[0]) for each in flat):
            raise ValueError(f"`{spec.name}`: expected lists of equal lengths")
        shape.append(len(flat[0]))
        flat = [element for each in flat for element in each]
        if not flat:
            raise ValueError(f"`{spec.name}`: expected at least one element")
    letter = DTYPES[spec.dtype].buffer
    try:
        if letter == "?":
            found = memoryview(bytes(map(bool, flat)))
        else:
            found = memoryview(array.array(letter, flat)).cast("B")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"`{spec.name}`: expected numbers of {spec.dtype}: {error}") from None
    return found.cast(letter, shape) if reduce(mul, shape, 1) else found


def lists_of(result):
    """A result as nested lists."""
    if isinstance(result, dict):
        return {name: lists_of(each) for name, each in result.items()}
    if isinstance(result, (list, tuple)):
        return [lists_of(each) for each in result]
    return memoryview(result).tolist()
