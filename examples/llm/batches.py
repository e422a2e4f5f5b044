"""Sequences that begin and end at any time, over a fixed number of slots of one session.

Each step begins waiting requests in the slots that are free (`prefill`), and gives every sequence
under way one more token (`decode`). Needs the runtime alone: neither torch nor transformers nor
numpy.
"""

import array
import collections
import dataclasses
import random

LENGTHS = 16  # prompts are padded to a multiple of it, so that a session meets few shapes


class RequestRefused(ValueError):
    """A request that the program cannot serve; the message says why."""


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt and how to continue it. `tokens` is filled as they come; `finish` says why no more
    do: "stop", "length", or None."""

    prompt: list[int]
    max_tokens: int = 64
    stop: frozenset[int] = frozenset()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    tokens: list[int] = dataclasses.field(default_factory=list)
    finish: str | None = None

    def __post_init__(self):
        if self.seed is None:
            self.seed = random.getrandbits(63)


class Batches:
    """The slots of one session, and the requests that wait for one.

    `sizes`: those of the session, where the program leaves them to it.
    """

    def __init__(self, program, **sizes):
        self.session = program.session(**sizes)
        shapes = {spec.name: spec.shape for spec in self.session.state.specs}
        keys = next(name for name in shapes if name.endswith("layers.0.keys"))
        self.slots, _, self.max_length, _ = shapes[keys]
        self.vocabulary = next(shapes[name] for name in shapes if name.endswith("is_seen"))[1]
        dims = {dim.name: dim for dim in program.entries["prefill"].dims}
        self.longest_prompt = min(dims["tokens"].high, self.max_length)
        self.free = list(range(self.slots))
        self.active = {}  # slot → request
        self.waiting = collections.deque()
        # What `decode` reads of each slot; those without a sequence compute what nobody reads.
        self.ids, self.positions = zeros(self.slots), zeros(self.slots)
        self.temperature, self.top_k = zeros(self.slots, "f"), zeros(self.slots)
        self.top_p = array.array("f", [1.0] * self.slots)
        self.penalty, self.seeds = self.top_p[:], zeros(self.slots)
        self.sampling = (self.temperature, self.top_k, self.top_p, self.penalty, self.seeds)
        self.prefill = self.session["prefill"]
        # How much of the cache a step reads → the entry point that reads no more.
        parts = {int(name[7:]): name for name in program.entries if name.startswith("decode_")}
        parts[self.max_length] = "decode"
        self.decodes = [(length, self.session[parts[length]]) for length in sorted(parts)]

    def add(self, request):
        """Have a request wait for a slot. Raises RequestRefused, without effect on the others."""
        self.check(request)
        self.waiting.append(request)

    def check(self, request):
        """Raise RequestRefused for what the program cannot serve."""
        count = len(request.prompt)
        if not count:
            raise RequestRefused("the prompt is empty, expected at least one token")
        if count > self.longest_prompt or count + request.max_tokens > self.max_length:
            raise RequestRefused(
                f"the prompt has {count} tokens and max_tokens is {request.max_tokens}, expected "
                f"at most {self.max_length} together and {self.longest_prompt} of the prompt: the "
                "program holds no more"
            )
        if request.max_tokens < 1:
            raise RequestRefused(f"max_tokens is {request.max_tokens}, expected at least 1")
        if not all(0 <= token < self.vocabulary for token in request.prompt):
            raise RequestRefused(f"a token of the prompt is not in 0..{self.vocabulary - 1}")
        if not (
            request.temperature >= 0
            and request.top_k >= 0
            and 0 < request.top_p <= 1
            and request.repetition_penalty > 0
            and -(2**63) <= request.seed < 2**63
        ):
            raise RequestRefused(
                "expected temperature >= 0, top_k >= 0, 0 < top_p <= 1, repetition_penalty > 0 "
                "and a seed of 64 bits"
            )

    def cancel(self, request, why="cancelled"):
        """Nobody waits for it any more: its slot is free at once."""
        self.waiting = collections.deque(each for each in self.waiting if each is not request)
        for slot in [slot for slot, each in self.active.items() if each is request]:
            self._end(slot, why)

    def is_idle(self):
        return not self.active and not self.waiting

    def step(self):
        """Begin what can begin, one more token of the others; the requests that got a token."""
        going = list(self.active.items())
        served = self._begin()
        if going:
            last = max(self.positions)
            decode = next(decode for length, decode in self.decodes if last < length)
            found = decode(self.ids, self.positions, *self.sampling)
            tokens = memoryview(found["tokens"]).tolist()
            for slot, request in going:
                self.positions[slot] += 1
                self._give(slot, request, tokens[slot])
                served.append(request)
        return served

    def _begin(self):
        begun = []
        while self.waiting and self.free:
            slot = self.free.pop()
            request = self.active[slot] = self.waiting.popleft()
            begun.append((slot, request))
            self.temperature[slot], self.top_k[slot] = request.temperature, request.top_k
            self.top_p[slot], self.penalty[slot] = request.top_p, request.repetition_penalty
            self.seeds[slot], self.positions[slot] = request.seed, len(request.prompt)
        if begun:
            slots = [slot for slot, _ in begun]
            tokens = self._prefill(slots, [request.prompt for _, request in begun])
            for (slot, request), token in zip(begun, tokens, strict=True):
                self._give(slot, request, token)
        return [request for _, request in begun]

    def _prefill(self, slots, prompts):
        """The first token of each slot's sequence."""
        count, longest = len(prompts), max(map(len, prompts))
        longest = min(-(-longest // LENGTHS) * LENGTHS, self.longest_prompt)
        ids = zeros(count * longest)
        for place, prompt in enumerate(prompts):
            ids[place * longest : place * longest + len(prompt)] = array.array("q", prompt)
        found = self.prefill(
            memoryview(ids).cast("B").cast("q", [count, longest]),
            array.array("q", map(len, prompts)),
            array.array("q", slots),
            *(array.array(each.typecode, [each[slot] for slot in slots]) for each in self.sampling),
        )
        return memoryview(found["tokens"]).tolist()

    def _give(self, slot, request, token):
        request.tokens.append(token)
        self.ids[slot] = token
        if token in request.stop:
            self._end(slot, "stop")
        elif len(request.tokens) == request.max_tokens:
            self._end(slot, "length")

    def _end(self, slot, why):
        self.active.pop(slot).finish = why
        self.positions[slot] = 0
        self.free.append(slot)


def zeros(count, kind="q"):
    """`count` elements of 64-bit integers, or of another kind of `array`."""
    return array.array(kind, bytes(count * array.array(kind).itemsize))
