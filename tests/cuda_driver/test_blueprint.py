"""Graphs of several sessions and sizes from one blueprint: numbers, maps, counts, faults."""

import struct
import threading

import pytest
from fake_program import COUNT, Host, small_plan
from plan_trees import with_uses

from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.drivers.cuda import blueprint
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.errors import AotcError

ADD, SET, PATCH = (
    "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams_v2",
)  # fmt: skip
ENCODE, INSTANTIATE = "cuTensorMapEncodeTiled", "cuGraphInstantiateWithFlags"
COLUMNS, WEIGHT_ROWS = 16, 4  # of bf16
ROW_BYTES = 2 * COLUMNS
LARGEST = 64
# to, from, map, its shape and strides, Triton's own
IMAGE = b"FAKE sm_90\ncopy 8 8 128 8 8 8 8 8 8\n\0"


def copy(memory, grid, values):
    """All that the map is of goes to the first argument; one program a row."""
    to, _, described, rows, columns, stride, one, *_ = values
    found = struct.unpack_from("<7Q", described.to_bytes(128, "little"))
    address, rank, inner, outer, stride_bytes, *box = found
    assert (rank, inner, stride_bytes, box) == (2, columns, 2 * stride, [16, 2])
    assert (outer, columns, one) == (rows, COLUMNS, 1)
    assert grid == (rows, 1, 1)
    memory(to, rows * ROW_BYTES)[:] = memory(address, rows * ROW_BYTES)


def varying_plan():
    """x → arena → y, each by a map of n rows; weight → w, a map of WEIGHT_ROWS, four times."""
    row = {"argument": 1, "dtype": "bf16", "start": 0, "strides": [COLUMNS, 1], "box": [2, 16]}
    own = {**row, "shape": [[0], COLUMNS], "swizzle_bytes": 32}
    of_weight = {**own, "shape": [WEIGHT_ROWS, COLUMNS]}
    rest = {"kind": "kernel", "kernel": 0}
    varying, fixed = [[0], 1, 1], [WEIGHT_ROWS, 1, 1]
    steps = [
        {**rest, "grid": varying, "args": [["arena", 0], ["input", 0]], "maps": [own]},
        {**rest, "grid": varying, "args": [["arena", [2]], ["arena", 0]], "maps": [own]},
        {**rest, "grid": varying, "args": [["output", 0], ["arena", [2]]], "maps": [own]},
        *[{**rest, "grid": fixed, "args": [["output", 1], ["weight", "w"]], "maps": [of_weight]}]
        * 4,
    ]
    variant = {
        "arena_bytes": [4],
        "zeroed_bytes": 0,
        "entry": 0,
        "ranges": [[1, LARGEST]],
        "buffers": [
            {"name": "a", "offset": 0, "nbytes": [2]},
            {"name": "b", "offset": [2], "nbytes": [2]},
        ],
        "checks": [],
        "steps": steps,
    }
    image = {"offset": 0, "nbytes": len(IMAGE), "threads": 128, "shared_bytes": 0}
    image |= {"scratch_bytes": 0, "is_programmatic": 1}
    # Values: n, 64, 64·n, 2, 128·n.
    sizes = [["number", 64, 0], ["mul", 0, 1], ["number", 2, 0], ["mul", 2, 3]]
    tree = {
        "abi": PLAN_ABI,
        "dims": 1,
        "features": ["dynamic-shapes", "tensor-maps"],
        "states": [],
        "sizes": sizes,
        "limits": [],
        "scratch_bytes": 0,
        "kernels": [{"symbol": "copy", "name": "copy", "image": image}],
        "variants": [variant],
    }
    return Plan.from_map(with_uses(tree))


class Program:
    """The plan of varying sizes on the fake device."""

    def __init__(self, fake):
        self.fake = fake
        fake.kernels["copy"] = copy
        self.plan = varying_plan()
        self.weight = bytes(range(WEIGHT_ROWS * ROW_BYTES))
        self.host = Host(self.weight)
        weights = {"w": (self.host.address, self.host.nbytes)}
        self.executable = Executable(IMAGE, self.plan, weights, (), ())
        self.shared = self.executable.shared()

    def session(self, rows):
        nbytes = rows * ROW_BYTES
        code = self.executable.at(self.plan.at([rows]), (nbytes,), (nbytes, len(self.weight)))
        return code.session(self.shared)

    def run(self, session, rows, seed=0):
        """One call; its output and the weight."""
        device, nbytes = self.executable.gpu, rows * ROW_BYTES
        data = bytes((seed + at) % 251 for at in range(nbytes))
        given, back, copied = Host(data), Host(bytes(nbytes)), Host(bytes(len(self.weight)))
        places = [device.allocate(each) for each in (nbytes, nbytes, len(self.weight))]
        device.copy_to_device(places[0], given.address, nbytes)
        session.addresses[:] = places
        session.run()
        device.synchronize()
        device.copy_to_host(back.address, places[1], nbytes)
        device.copy_to_host(copied.address, places[2], len(self.weight))
        for place in places:
            device.free(place)
        assert (back.bytes, copied.bytes) == (data, self.weight)

    def close(self):
        self.shared.close()
        self.executable.close()


@pytest.fixture
def program(fake_cuda):
    found = Program(fake_cuda)
    yield found
    found.close()
    assert fake_cuda.live() == {}


def made(fake, make):
    """What `make` gives, and how often it called each function."""
    before = dict(fake.calls)
    found = make()
    return found, {name: count - before.get(name, 0) for name, count in fake.calls.items()}


def test_sessions_of_several_sizes_live_side_by_side(program):
    rows = (1, 5, LARGEST, 5, 2)
    sessions = [(program.session(each), each) for each in rows]
    for seed in (1, 2):
        for number, (session, each) in enumerate(sessions):
            program.run(session, each, 10 * number + seed)
    for session, each in sessions[::2]:
        program.run(session, each, 3)
        session.close()
    for session, each in sessions[1::2]:
        program.run(session, each, 4)
        session.close()


def test_new_sizes_change_nodes_and_add_none(program, fake_cuda):
    session, first = made(fake_cuda, lambda: program.session(3))
    session.close()
    launches = len(program.plan.variants[0].steps)
    assert (first[ADD], first.get(SET, 0), first[INSTANTIATE]) == (launches, 0, 1)
    for rows in (4, 4, 50):
        session, found = made(fake_cuda, lambda rows=rows: program.session(rows))
        assert (found[ADD], found[SET], found[INSTANTIATE]) == (0, launches, 1)
        assert found["cuGraphCreate"] == found["cuGraphAddDependencies_v2"] == 0
        # Two of the arena in the blueprint's frame; one of it and the weight's in the session's.
        assert found[ENCODE] == 4
        program.run(session, rows, rows)
        session.close()


def test_a_call_patches_the_nodes_of_its_own_addresses(program, fake_cuda):
    session = program.session(3)
    _, found = made(fake_cuda, lambda: program.run(session, 3))
    assert found[PATCH] == 6  # all launches but the one between the buffers
    session.close()


def test_threads_that_open_sessions_at_once(program):
    failed, barrier = [], threading.Barrier(4)

    def work(number):
        try:
            barrier.wait()
            for rows in (number + 1, 20 + number, 3):
                session = program.session(rows)
                with TURN:
                    program.run(session, rows, number)
                session.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


TURN = threading.Lock()  # sessions that share an arena take turns


@pytest.mark.parametrize("name", [ADD, SET, INSTANTIATE, ENCODE, "cuGraphCreate"])
def test_what_fails_once_is_made_again(program, fake_cuda, name):
    """In the first session or in a later one; the graph of the others stays as it was."""
    kept = program.session(2)
    for rows in (2, 7):
        for nth in (1, 2, 4):
            fake_cuda.fail(name, 1, nth)
            try:
                program.session(rows).close()
            except AotcError:
                assert not fake_cuda.faults
            fake_cuda.faults.clear()
            session = program.session(rows)
            program.run(session, rows, nth)
            program.run(kept, 2, nth)
            session.close()
    kept.close()


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_first_session_that_fails_leaves_nothing(fake_cuda, nth):
    program = Program(fake_cuda)
    before = fake_cuda.live()
    fake_cuda.fail(ADD, 1, nth)
    with pytest.raises(AotcError, match="cuGraphAddKernelNode_v2"):
        program.session(3)
    assert fake_cuda.live() == before
    session = program.session(3)
    program.run(session, 3)
    session.close()
    program.close()
    assert fake_cuda.live() == {}


def test_sessions_of_fixed_shapes_share_a_graph(program, fake_cuda, weights):
    image, plan = small_plan()
    from fake_program import KERNELS

    fake_cuda.kernels.update(KERNELS)
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    graphs = len(fake_cuda.graphs)
    sessions = [executable.session() for _ in range(3)]
    assert len(fake_cuda.graphs) == graphs + 1
    for number, session in enumerate(sessions):
        given, back = Host(bytes([number] * COUNT)), Host(bytes(COUNT))
        session.copy_in(0, given.address)
        session.stage(1)
        session.run(session.stream)
        session.copy_out(1, back.address)
        session.synchronize()
        assert back.bytes == bytes([30 + number] * COUNT)
    for session in sessions:
        session.close()
    executable.close()


def test_a_chain_without_launches(fake_cuda, program):
    made_of_none = blueprint.Blueprint(program.executable, ())
    table = made_of_none.table([], {"scratch": lambda _: 0})
    made_of_none.instance(table).close()
    made_of_none.close()
