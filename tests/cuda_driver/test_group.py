"""Programs on several devices, over a fake driver that puts work off to the worst order."""

import pytest
from fake_cubin import text_image
from fake_cuda import FakeCuda, install
from fake_program import COUNT, Host, ran

from aotc.runtime.bundle.plan import Buffer, Check, Image, Kernel, Launch, LaunchPlan, StateSlot
from aotc.runtime.drivers.cuda import streams
from aotc.runtime.drivers.cuda.driver import group, missing
from aotc.runtime.drivers.cuda.errors import (
    CallEndedHalfWay,
    DeviceMemoryFull,
    PeerUnreachable,
    RankSilent,
    StateInParts,
)

RANKS, UNIT = 3, 16
ROWS, SENT, STATUS = 256, 512, 0  # places in the arena: rows of all ranks, this one's, flags


def split_plan():
    """output = Σ of all ranks (input + w of the rank + state); then state = that sum."""
    image = text_image({"add": 5, "give": 5 + RANKS, "total": 4})
    row = Image(0, len(image), 128, 0, 0, False)
    one = (1, 1, 1)
    peers = tuple(("peer", rank) for rank in range(RANKS))
    given = (("arena", ROWS), ("arena", SENT), ("check", 0), *peers)
    return image, LaunchPlan(
        arena_bytes=1024,
        scratch_bytes=0,
        buffers=(
            Buffer("flags", STATUS, COUNT),
            Buffer("rows", ROWS, RANKS * COUNT),
            Buffer("sent", SENT, COUNT),
        ),
        kernels=tuple(Kernel(name, name, row) for name in ("add", "give", "total")),
        steps=(
            Launch(0, one, (("arena", SENT), ("input", 0), ("weight", "w"))),
            Launch(0, one, (("arena", SENT), ("arena", SENT), ("state", 0))),
            Launch(1, one, given),
            Launch(2, one, (("output", 0), ("arena", ROWS))),
            Launch(2, one, (("state", 0), ("arena", ROWS))),
        ),
        zeroed_bytes=256,
        states=(StateSlot(COUNT),),
        checks=(Check("exchange", "exchange", "", 0, 0),),
    )


class Kernels:
    """The plan's kernels: `give` stores its row on all ranks, and then waits for the others'."""

    def __init__(self, fake):
        self.fake, self.silent, self.waiting = fake, set(), set()
        fake.kernels.update({"add": self.add, "give": self.give, "total": self.total})

    def add(self, memory, grid, values):
        to, a, b = (memory(address, COUNT) for address in values[:3])
        to[:] = bytes((x + y) % 256 for x, y in zip(a, b, strict=True))

    def total(self, memory, grid, values):
        to, rows = memory(values[0], COUNT), memory(values[1], RANKS * COUNT)
        to[:] = bytes(sum(rows[at::COUNT]) % 256 for at in range(COUNT))

    def give(self, memory, grid, values):
        rows, sent, word = values[:3]
        peers = values[3 : 3 + RANKS]
        rank = peers.index(0)
        if rank in self.silent:
            return
        for distance in peers:
            memory(rows + distance * UNIT + rank * COUNT, COUNT)[:] = memory(sent, COUNT)
        self.waiting.add(rank)  # the others go on meanwhile, until they wait too
        for stream in self.fake.streams.values():
            if stream.context - self.fake.devices[0].context not in self.waiting:
                self.fake._finish(stream)
        self.waiting.remove(rank)
        for each in self.silent:
            memory(word, 8)[:] = (2 + each).to_bytes(8, "little")


@pytest.fixture
def fake(monkeypatch):
    fake = install(monkeypatch, FakeCuda(devices=RANKS + 1))
    yield fake
    fake.check()


@pytest.fixture
def kernels(fake):
    return Kernels(fake)


def weights():
    """w of each rank, and what no rank reads."""
    hosts = {"w": Host(bytes([1] * COUNT))}
    hosts |= {f"w@rank{rank}": Host(bytes([1 + rank] * COUNT)) for rank in range(1, RANKS)}
    return hosts


def spans(hosts):
    return {name: (host.address, COUNT) for name, host in hosts.items()}


def made(device=0):
    hosts = weights()
    return group(RANKS)(*split_plan(), spans(hosts), (COUNT,), (COUNT,), device)


def test_ranks_run_together_and_keep_their_states(fake, kernels):
    code = made()
    with_own, shared = code.session(), code.shared()
    for session in (with_own, code.session(shared)):
        state = 0
        for number in (1, 5, 9):
            state = (RANKS * number + 1 + 2 + 3 + RANKS * state) % 256
            assert ran(session, bytes([number] * COUNT)) == bytes([state] * COUNT)
        session.close()
    shared.close()
    code.close()
    assert fake.live() == {}
    assert {(a, b) for a in range(RANKS) for b in range(RANKS) if a != b} == fake.peers


def test_devices_are_those_behind_the_first(fake, kernels):
    code = made(device=1)
    assert [each.device for each in code.ranks] == [1, 2, 3]
    code.close()
    with pytest.raises(Exception, match="the driver shows 4 devices"):
        made(device=2)
    assert fake.live() == {}


def test_other_weights_reach_each_rank(fake, kernels):
    code, hosts = made(), {name: Host(bytes([10] * COUNT)) for name in weights()}
    session = code.session()
    code.overwrite(spans(hosts))
    assert ran(session, bytes(COUNT)) == bytes([30] * COUNT)
    read = {name: Host(bytes(COUNT)) for name in hosts}
    code.read_weights(spans(read))
    assert {each.bytes for each in read.values()} == {bytes([10] * COUNT)}
    session.close()
    code.close()
    assert fake.live() == {}


def test_states_are_taken_and_reset_on_each_rank(fake, kernels):
    code = made()
    rows = [code.shared() for _ in range(2)]
    first, second = map(code.session, rows)
    ran(first, bytes([7] * COUNT))
    rows[1].states.take(rows[0].states)
    assert ran(second, bytes(COUNT)) == ran(first, bytes(COUNT))
    rows[1].states.reset()
    assert ran(second, bytes(COUNT)) == bytes([6] * COUNT)
    for ask in (rows[0].states.read, rows[0].states.write):
        with pytest.raises(StateInParts, match="3 devices"):
            ask(0, 0)
    for each in (first, second, *rows, code):
        each.close()
    assert fake.live() == {}


@pytest.mark.parametrize("silent", range(RANKS))
def test_a_silent_rank_is_an_error_of_the_call(fake, kernels, silent):
    code = made()
    session = code.session()
    kernels.silent = {silent}
    with pytest.raises(RankSilent, match=f"device {silent} of the program"):
        ran(session, bytes(COUNT))
    session.close()
    code.close()
    assert fake.live() == {}


def test_a_call_on_another_stream_follows_the_one_before_on_every_device(fake, kernels):
    """Its stream waits for that one's end before the other ranks' streams follow it."""
    code = made()
    session = code.session()
    first, second = (code.gpu.stream() for _ in range(2))
    session.addresses[:] = [code.gpu.allocate(COUNT) for _ in range(2)]
    session.run(first.handle)
    session.synchronize()
    for stream, waits in ((second, 1), (second, 0), (first, 1)):
        done = len(fake.trace)
        session.run(stream.handle)
        names = [name for name in fake.trace[done:] if name.startswith(("cuStreamW", "cuEventR"))]
        assert names.index("cuEventRecord") == waits
        session.synchronize()
    for each in (session, code):
        each.close()
    assert fake.live() == {}


def test_host_arrays_reach_every_rank_on_any_stream(fake, kernels):
    code = made()
    session, stream = code.session(), code.gpu.stream()
    given, found = Host(bytes([5] * COUNT)), Host(bytes(COUNT))
    session.copy_in(0, given.address)
    session.stage(1)
    session.run(stream.handle)
    for each in session._streams:  # the other ranks are ahead
        fake._finish(fake.streams[each.handle])
    session.copy_out(1, found.address)
    session.synchronize()
    assert found.bytes == bytes([RANKS * 5 + 6] * COUNT)
    session.close()
    code.close()


def test_what_is_wrong_with_data_is_raised_before_any_rank_is_launched(fake, kernels):
    code = made()
    session = code.session()
    ran(session, bytes(COUNT))
    launches = len(fake.launches)
    fake.memory(session._others[1].checks.addresses[0], 8)[:] = (2).to_bytes(8, "little")
    with pytest.raises(RankSilent):
        session.run(session.stream)
    fake.settle()
    assert len(fake.launches) == launches
    with pytest.raises(RankSilent):  # the flags of the ranks are no more alike
        session.run(session.stream)
    session.close()
    code.close()
    assert fake.live() == {}


def interrupted(stream):
    raise KeyboardInterrupt


def test_a_call_that_ends_half_way_is_the_last_one(fake, kernels):
    code = made()
    session = code.session()
    ran(session, bytes(COUNT))
    session._others[1].run = interrupted
    with pytest.raises(KeyboardInterrupt):
        session.run(session.stream)
    with pytest.raises(CallEndedHalfWay):
        session.run(session.stream)
    session.close()
    code.close()
    assert fake.live() == {}


def test_nothing_is_closed_while_torch_records(fake, kernels, monkeypatch):
    code = made()
    shared = code.shared()
    session = code.session(shared)
    ran(session, bytes(COUNT))
    with monkeypatch.context() as recording:
        recording.setattr(streams, "is_recording", lambda: True)
        before = dict(fake.calls)
        for each in (session, shared, code):
            each.close()
        assert dict(fake.calls) == before
    streams.put_off(lambda: None)
    assert fake.live() == {}


def test_devices_that_do_not_reach_each_other(fake, kernels):
    fake.unreachable.add((1, 2))
    (row,) = missing(["sm_90"], 0, RANKS)
    assert row[0] == "peer-unreachable"
    assert "device 1 does not reach device 2" in row[2]
    with pytest.raises(PeerUnreachable, match="device 1 cannot reach the memory of device 2"):
        made()
    assert fake.live() == {}
    assert missing(["sm_90"], 0, 5)[0][0] == "device-absent"
    assert missing(["sm_90"], 2, 2) == []


@pytest.mark.parametrize("nth", range(1, 16))
def test_no_memory_leaves_nothing_behind(fake, kernels, nth):
    fake.fail("cuMemAlloc_v2", 2, nth)
    code = session = None
    try:
        code = made()
        session = code.session()
    except DeviceMemoryFull:
        pass
    for each in (session, code):
        if each is not None:
            each.close()
    assert fake.live() == {}
