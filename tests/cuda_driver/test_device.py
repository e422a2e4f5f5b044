"""A device through the fake driver: memory, code, launches, contexts of threads, closing."""

import ctypes

from fake_cubin import text_image

from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.handles import Arguments


def test_a_launch(fake_cuda):
    def copy(memory, grid, values):
        to, source, nbytes = values[:3]
        memory(to, nbytes)[:] = memory(source, nbytes)

    fake_cuda.kernels["copy"] = copy
    device = Device()
    assert device.name == "Fake H200"
    assert device.capability == (9, 0)
    source, to = device.allocate(64), device.allocate(64)
    data = ctypes.create_string_buffer(bytes(range(64)), 64)
    device.copy_to_device(source, ctypes.addressof(data), 64)
    function = device.function(device.load(text_image({"copy": 3})), "copy")
    device.launch(function, (1, 1, 1), 128, Arguments([to, source, 64]))
    device.synchronize()
    back = ctypes.create_string_buffer(64)
    device.copy_to_host(ctypes.addressof(back), to, 64)
    assert back.raw == bytes(range(64))
    device.close()
    assert fake_cuda.live() == {}
