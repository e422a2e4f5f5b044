"""Sequences that begin and end at any time, over a fixed number of slots of one session.

Each step begins waiting requests in the slots that are free, and gives every sequence under way one
more token. Needs the runtime alone: neither torch nor transformers nor numpy.
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
    """The slots of one session, and the requests that wait for one."""

    def __init__(self, program):
        self.session = program.session()
        keys = next(state for state in program.states if state.name.endswith("layers.0.keys"))
        self.slots, _, self.max_length, _ = keys.shape
        self.vocabulary = next(s for s in program.states if s.name.endswith("is_seen")).shape[1]
        self.longest_part = {dim.name: dim for dim in program.dims}["length"].high
        self.free = list(range(self.slots))
        self.active = {}  # slot → request
        self.waiting = collections.deque()

    def add(self, request):
        """Have a request wait for a slot. Raises RequestRefused, without effect on the others."""
        self.check(request)
        self.waiting.append(request)

    def check(self, request):
        """Raise RequestRefused for what the program cannot serve."""
        count = len(request.prompt)
        if not count:
            raise RequestRefused("the prompt is empty, expected at least one token")
        if count + request.max_tokens > self.max_length:
            raise RequestRefused(
                f"the prompt has {count} tokens and max_tokens is {request.max_tokens}, expected "
                f"at most {self.max_length} together: the program's cache holds no more"
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
        """Begin what can begin, then one token of each sequence; the requests that got one."""
        begun = self._begin()
        going = {slot: each for slot, each in self.active.items() if slot not in begun}
        if going:
            rows = [
                ([each.tokens[-1]], len(each.prompt) + len(each.tokens) - 1)
                for each in going.values()
            ]
            self._give(going, self._call(list(going.items()), rows))
        return [*begun.values(), *going.values()]

    def _begin(self):
        begun = {}
        while self.waiting and self.free:
            slot = self.free.pop(0)
            begun[slot] = self.active[slot] = self.waiting.popleft()
        at = 0
        pending = dict(begun)
        while pending:  # prompts longer than one call takes come in parts
            part = self.longest_part
            rows = [(each.prompt[at : at + part], at) for each in pending.values()]
            tokens = self._call(list(pending.items()), rows)
            at += part
            ended = {slot: each for slot, each in pending.items() if len(each.prompt) <= at}
            places = {slot: place for place, slot in enumerate(pending)}
            self._give(ended, [tokens[places[slot]] for slot in ended])
            pending = {slot: each for slot, each in pending.items() if slot not in ended}
        return begun

    def _call(self, items, rows):
        """The next token of each row: rows are tokens and how many of the sequence came before."""
        count, longest = len(rows), max(len(tokens) for tokens, _ in rows)
        if longest > 1:
            longest = min(-(-longest // LENGTHS) * LENGTHS, self.longest_part)
        ids = array.array("q", bytes(8 * count * longest))
        for place, (tokens, _) in enumerate(rows):
            begin = place * longest
            ids[begin : begin + len(tokens)] = array.array("q", tokens)
        requests = [request for _, request in items]
        found = self.session(
            memoryview(ids).cast("B").cast("q", [count, longest]),
            array.array("q", [start for _, start in rows]),
            array.array("q", [len(tokens) for tokens, _ in rows]),
            array.array("q", [slot for slot, _ in items]),
            array.array("f", [each.temperature for each in requests]),
            array.array("q", [each.top_k for each in requests]),
            array.array("f", [each.top_p for each in requests]),
            array.array("f", [each.repetition_penalty for each in requests]),
            array.array("q", [each.seed for each in requests]),
        )
        return memoryview(found["tokens"]).tolist()

    def _give(self, slots, tokens):
        for (slot, request), token in zip(slots.items(), tokens, strict=True):
            request.tokens.append(token)
            if token in request.stop:
                self._end(slot, "stop")
            elif len(request.tokens) == request.max_tokens:
                self._end(slot, "length")

    def _end(self, slot, why):
        self.active.pop(slot).finish = why
        self.free.append(slot)
