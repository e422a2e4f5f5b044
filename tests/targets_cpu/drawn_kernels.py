"""Triton kernels drawn at random: arithmetic, pointers, reductions, scans, products, memory, and
control flow around them.

    python drawn_kernels.py KERNELS.py RESULTS.pt    # runs a file of `text`; see `results`

Values are whole numbers below 64, in f32 and i32, and what is computed of them is exact: so all
right results have the same bits, whatever the order of sums.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from typing import Any

import torch

PROGRAMS, ARGUMENT = 2, 3
LOADED, STORED, OWN = (
    1 << 12,
    1 << 14,
    256,
)  # elements: of each input, of a program's results and memory
HEAD = '''"""Drawn kernels."""

import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def wrapped(x):
    return x - tl.floor(x * 0.015625) * 64.0


'''
# By kind of variable: f, i of f32 and i32 `[B]`; s, t scalars of these; m f32 `[B, B]`; p pointers.
EXPRESSIONS = {
    "f": [
        "{f} + {f}", "{f} - {f}", "{f} * {f}", "{f} + {s}", "tl.maximum({f}, {f})",
        "tl.minimum({f}, {s})", "tl.where({f} > {f}, {f}, {f} + 1)",
        "tl.where({i} < {t}, {f}, {s})",
        "tl.where({t} > {t}, {f}, {f})", "{i}.to(tl.float32) + {f}", "tl.load({p})", "tl.load({p})",
        "tl.load({p}, mask={i} > {n}, other=3.0)", "tl.load(x_ptr + {i})", "tl.cumsum({f}, 0)",
        "tl.cumsum({f}, 0, reverse=True)", "tl.associative_scan({f}, 0, larger)", "tl.flip({f}, 0)",
        "tl.sum({m}, 1)", "tl.sum({m}, 0)", "tl.max({m}, 0)", "tl.min({m}, 1)", "tl.sort({f})",
        "tl.gather({f}, {i} % {B}, 0)",
    ],
    "i": [
        "{i} + {i}", "{i} * {i}", "{i} ^ {t}", "{i} // ({n} + 1)", "{i} % ({n} + 1)",
        "{f}.to(tl.int32)", "tl.where({f} > {s}, {i}, {i} + 5)", "tl.cumsum({i}, 0)",
        "({i} << 1) + ({i} >> 2)", "tl.argmax({m}, 1)", "{i} + tl.arange(0, {B})",
        "({i}.to(tl.int64) * 3 + {t}).to(tl.int32)", "{i}.to(tl.int8).to(tl.int32)",
    ],
    "s": [
        "tl.sum({f}, 0)", "tl.max({f}, 0)", "{s} + {s}", "{s} * {s}", "tl.load(x_ptr + {t})",
        "tl.sum(tl.sum({m}, 1), 0)", "{t} * 1.0",
    ],
    "t": [
        "tl.sum({i}, 0)", "tl.max({i}, 0)", "{t} + {t}", "{t} * {t} + 1", "tl.argmin({f}, 0)",
        "{s}.to(tl.int32)", "{t} // ({n} + 1)",
    ],
    "m": [
        "{f}[:, None] + {f}[None, :]", "{m} + {m}", "{m} + {f}[None, :]", "tl.trans({m})",
        "tl.where({i}[:, None] > {i}[None, :], {m}, {s})", "tl.maximum({m}, {f}[:, None])",
        "tl.load(x_ptr + {i}[:, None] * 8 + {i}[None, :])", "tl.cumsum({m}, 0)",
        "tl.cumsum({m}, 1)",
        "tl.load(x_ptr + {i}[None, :] * 32 + tl.arange(0, {B})[:, None])",
        'tl.dot({m}, {m}, input_precision="ieee")',
    ],
    "p": [
        "x_ptr + {i}", "x_ptr + {i} * 8 + {t}", "{p} + {k}",
        "tl.where({f} > {f}, {p}, x_ptr + {i})", "tl.where({t} > {t}, {p}, {p})",
    ],
    "condition": ["{s} > {s}", "{t} % 2 == 0", "{t} < {n}"],
    "count": ["n", "n - 1", "0", "1", "2"],
    "place": ["tl.arange(0, {B})", "{B} - 1 - tl.arange(0, {B})"],
}  # fmt: skip
WRAPPED = {
    "f": "wrapped({})",
    "s": "wrapped({})",
    "m": "wrapped({})",
    "i": "({}) & 63",
    "t": "({}) & 63",
}
KINDS = "ffffiistmp"


class _Variables(dict[str, Any]):
    """What a template names, drawn anew each time."""

    def __init__(self, chosen: random.Random, block: int) -> None:
        super().__init__(f=["f0", "f1"], i=["i0", "i1"], s=["s0"], t=["t0"], m=["m0"], p=["p0"])
        self.chosen, self.block = chosen, block

    def __getitem__(self, key: str) -> Any:
        if key == "B":
            return self.block
        if key in ("n", "k"):
            return self.chosen.randint(0, 40 if key == "n" else 3)
        return self.chosen.choice(super().__getitem__(key))

    def add(self, kind: str) -> str:
        names = self.get(kind, [])
        names.append(f"{kind}{len(names)}")
        return str(names[-1])


class _Kernel:
    """Writes a kernel."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.block = self.chosen.choice((16, 32, 64))
        self.names = _Variables(self.chosen, self.block)
        self.lines: list[str] = []
        self.loops = 0

    def text(self, name: str) -> str:
        block = self.block
        self.put(0, f"i0 = tl.arange(0, {block})", "t0 = tl.program_id(0) + 1")
        self.put(0, f"own = out_ptr + {PROGRAMS * STORED} + tl.program_id(0) * {OWN}")
        self.put(0, "s0 = tl.load(x_ptr + t0)", "f0 = tl.load(x_ptr + i0 + t0)", "p0 = x_ptr + i0")
        self.put(0, "m0 = tl.load(x_ptr + i0[:, None] * 8 + i0[None, :])")
        self.put(
            0, "f1 = tl.load(y_ptr + i0 * 2)", "i1 = (i0 * 5 + t0) & 63", "i0 = (i0 + t0) & 63"
        )
        for _ in range(self.chosen.randint(6, 26)):
            self.statement(0)
        self.results()
        return (
            f"@triton.jit\ndef {name}(out_ptr, x_ptr, y_ptr, n):\n"
            + "\n".join(self.lines)
            + "\n\n\n"
        )

    def put(self, level: int, *lines: str) -> None:
        self.lines += ["    " * (level + 1) + line for line in lines]

    def drawn(self, kind: str) -> str:
        found = self.chosen.choice(EXPRESSIONS[kind]).format_map(self.names)
        return WRAPPED.get(kind, "{}").format(found)

    def statement(self, level: int) -> None:
        drawn = self.chosen.random()
        if level < 2 and drawn < 0.12:
            self.put(level, f"if {self.drawn('condition')}:")
            self.body(level + 1)
            if self.chosen.random() < 0.7:
                self.put(level, "else:")
                self.body(level + 1)
        elif level < 2 and drawn < 0.22:
            self.put(level, f"for _ in range({self.drawn('count')}):")
            self.body(level + 1)
        elif level < 2 and drawn < 0.3:
            self.loops += 1
            turn = f"turn{self.loops}"
            self.put(level, f"{turn} = 0")
            self.put(
                level, f"while ({turn} < {self.drawn('count')}) & ({self.drawn('condition')}):"
            )
            self.body(level + 1)
            self.put(level + 1, f"{turn} += 1")
        elif drawn < 0.38:
            at, (value, inside) = (
                self.chosen.randrange(0, OWN, 64),
                (self.names["f"], self.names["i"]),
            )
            mask = f"mask={inside} > {self.chosen.randint(-1, 40)}"
            self.put(level, f"tl.store(own + {at} + {self.drawn('place')}, {value}, {mask})")
            self.put(level, "tl.debug_barrier()")
        elif drawn < 0.46:
            at = self.chosen.randrange(0, OWN, 64)
            self.put(
                level, f"{self.names['f']} = tl.load(own + {at} + {self.names['i']} % {self.block})"
            )
        else:
            kind = self.chosen.choice(KINDS)
            value = self.drawn(kind)
            is_new = level == 0 and self.chosen.random() < 0.6 and len(self.names.get(kind, [])) < 8
            self.put(level, f"{self.names.add(kind) if is_new else self.names[kind]} = {value}")

    def body(self, level: int) -> None:
        for _ in range(self.chosen.randint(1, 3)):
            self.statement(level)

    def results(self) -> None:
        """Every variable, one behind the other; of matrices the last one."""
        at, block = 0, self.block
        self.put(0, f"out_ptr += tl.program_id(0) * {STORED}", f"at = tl.arange(0, {block})")
        for kind in "fip":
            for name in self.names.get(kind, []):
                value = f"tl.load({name})" if kind == "p" else f"{name} * 1.0"
                self.put(0, f"tl.store(out_ptr + {at} + at, {value})")
                at += block
        for name in (*self.names.get("s", []), *self.names.get("t", [])):
            self.put(0, f"tl.store(out_ptr + {at}, {name} * 1.0)")
            at += 1
        place = f"at[:, None] * {block} + at[None, :]"
        self.put(0, f"tl.store(out_ptr + {at} + {place}, {self.names.get('m', [])[-1]})")


def text(seed: int, count: int) -> str:
    """A module with so many kernels."""
    return (
        HEAD
        + "".join(_Kernel(seed * 1000 + k).text(f"kernel{k}") for k in range(count)).rstrip()
        + "\n"
    )


def results(path: str) -> dict[str, torch.Tensor | str]:
    """What the kernels of a file store, by name; the error of one that raises."""
    spec = importlib.util.spec_from_file_location("drawn", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["drawn"] = module
    spec.loader.exec_module(module)
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randint(0, 64, (LOADED,), generator=generator).float() for _ in range(2))
    found: dict[str, torch.Tensor | str] = {}
    for name in [each for each in vars(module) if each.startswith("kernel")]:
        out = torch.zeros(PROGRAMS * (STORED + OWN))
        try:
            getattr(module, name)[(PROGRAMS,)](out, x, y, ARGUMENT)
            found[name] = out
        except Exception as error:  # whatever a compiler or the interpreter raises
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    torch.save(results(sys.argv[1]), sys.argv[2])
