"""Graphs through the fake driver: nodes in a chain, patched, filled, early."""

import ctypes
import itertools

import pytest
from fake_cubin import text_image
from fake_cuda import FakeCuda, install

from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.handles import Arguments


def increment(memory, grid, values):
    """to = from + 1, one byte."""
    to, source = (memory(address, 1) for address in values[:2])
    to[0] = source[0] + 1


@pytest.fixture
def device(fake_cuda):
    fake_cuda.kernels["increment"] = increment
    device = Device()
    yield device
    device.close()
    assert fake_cuda.live() == {}


def function_of(device):
    return device.function(device.load(text_image({"increment": 2})), "increment")


def byte_at(device, address):
    device.synchronize()
    found = ctypes.c_ubyte()
    device.copy_to_host(ctypes.addressof(found), address, 1)
    return found.value


@pytest.mark.parametrize("is_programmatic", [False, True])
def test_a_chain(device, fake_cuda, is_programmatic):
    function, graph = function_of(device), device.graph()
    places = [device.allocate(1) for _ in range(5)]
    graph.fill(places[0], 7, 1)
    for source, to in itertools.pairwise(places):
        graph.kernel(function, (1, 1, 1), 32, Arguments([to, source]), is_programmatic)
    graph.instantiate()
    graph.upload()
    graph.launch()
    assert byte_at(device, places[-1]) == 11
    # The first kernel follows a fill, for whose beginning nobody can wait.
    assert fake_cuda.calls["cuGraphAddDependencies_v2"] == (3 if is_programmatic else 0)
    graph.close()


def test_an_older_driver_has_no_programmatic_launch(monkeypatch):
    class Older(FakeCuda):
        def __getattr__(self, name):
            if name == "cuGraphAddDependencies_v2":
                raise AttributeError(name)
            return super().__getattr__(name)

    fake = install(monkeypatch, Older())
    fake.kernels["increment"] = increment
    device = Device()
    function, graph, place = function_of(device), device.graph(), device.allocate(1)
    graph.fill(place, 1, 1)
    for _ in range(2):
        graph.kernel(function, (1, 1, 1), 32, Arguments([place, place]), is_programmatic=True)
    graph.instantiate()
    graph.launch()
    assert byte_at(device, place) == 3
    device.close()
    fake.check()


def test_arguments_are_read_when_patched(device):
    function, graph = function_of(device), device.graph()
    a, b = device.allocate(1), device.allocate(1)
    device.fill(a, 1, 1)
    device.fill(b, 5, 1)
    arguments = Arguments([a, a])
    number = graph.kernel(function, (1, 1, 1), 32, arguments)
    graph.instantiate()
    arguments.slots[:] = [b, b]
    graph.launch()
    assert (byte_at(device, a), byte_at(device, b)) == (2, 5)
    graph.patch(number)
    arguments.slots[:] = [a, a]
    graph.launch()
    assert (byte_at(device, a), byte_at(device, b)) == (2, 6)


def test_events_around_a_launch(device):
    function, graph, place = function_of(device), device.graph(), device.allocate(1)
    begin, end = device.event(), device.event()
    graph.record(begin)
    graph.kernel(function, (1, 1, 1), 32, Arguments([place, place]))
    graph.record(end)
    graph.instantiate()
    graph.launch()
    device.synchronize()
    assert device.elapsed_ms(begin, end) == 0.5


def test_nodes_that_are_added_together_ask_for_the_context_once(device, fake_cuda):
    function, place = function_of(device), device.allocate(1)
    counts = []
    for nodes in (3, 30):
        graph, before = device.graph(), fake_cuda.calls["cuCtxGetCurrent"]
        with graph:
            for _ in range(nodes):
                graph.kernel(function, (1, 1, 1), 32, Arguments([place, place]))
        counts.append(fake_cuda.calls["cuCtxGetCurrent"] - before)
        graph.close()
    assert counts[0] == counts[1]
