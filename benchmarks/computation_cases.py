"""The table of single computations: what is computed, of which tensors (`computations.py`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

FLOATS = re.compile(r"torch\.(randn|rand)\([^()]*\)|torch\.empty\([^()]*\)\.exponential_\(\)")


@dataclass(frozen=True, slots=True)
class Case:
    """A function of x, y, z, w, as many as there are inputs, as the lines of its body; or a module,
    where the body is an expression of `torch.nn`. inputs: expressions of the tensors."""

    body: str
    inputs: tuple[str, ...]

    def spec(self, dtype: str | None = None) -> str:
        """The SPEC file that `aotc build` takes, of floats of a type of torch's."""
        cast = f".to(torch.{dtype})" if dtype else ""
        inputs = ", ".join(FLOATS.sub(rf"\g<0>{cast}", each) for each in self.inputs)
        inputs = f"example_inputs = ({inputs},)\n"
        if self.body.startswith("nn."):
            return f"import torch\nfrom torch import nn\n\nmodel = {self.body}{cast}\n{inputs}"
        names = ", ".join("xyzw"[: len(self.inputs)])
        lines = "\n".join(f"    {line}" for line in self.body.split("\n"))
        head = "import math\n\nimport torch\nimport torch.nn.functional as F\n\n\n"
        return f"{head}def model({names}):\n{lines}\n\n\n{inputs}"


def _case(body: str, *inputs: str) -> Case:
    return Case(body, inputs)


def _of(shape: str, more: str = "") -> str:
    return f"torch.randn({shape}{more})"


LONG, WIDE, SHORT, TALL = "3, 300_007", "16, 50_021", "50_000, 37", "20_011, 96"
_GROUPS: dict[str, dict[str, Case]] = {
    "orders": {
        "top 50 of 3 × 5,000, softmax": _case(
            "values, places = torch.topk(x, 50)\nreturn values.softmax(-1), places", _of("3, 5000")
        ),
        "top 50 of 1 × 150,000": _case("return torch.topk(x, 50)", _of("1, 150_000")),
        "top 8 of 64 × 1,024": _case("return torch.topk(x, 8)", _of("64, 1024")),
        "top 2 of 4,096 × 64": _case("return torch.topk(x, 2)", _of("4096, 64")),
        "top 50 of 64 × 50,000": _case("return torch.topk(x, 50)", _of("64, 50_000")),
        "top 200 of 8 × 10,007": _case("return torch.topk(x, 200)", _of("8, 10_007")),
        "sort of 3 × 5,000": _case("return torch.sort(x)", _of("3, 5000")),
        "sort of 64 × 512": _case("return torch.sort(x)", _of("64, 512")),
        "sort of 8 × 50,000": _case("return torch.sort(x)", _of("8, 50_000")),
        "argsort of 1 × 100,000": _case("return torch.argsort(x)", _of("1, 100_000")),
        "stable sort of 16 × 4,096 i64": _case(
            "return torch.sort(x, dim=-1, stable=True)", "torch.randint(0, 1000, (16, 4096))"
        ),
        "sort of 5,000 × 7 along 0": _case("return torch.sort(x, dim=0)", _of("5000, 7")),
        "median of 8 × 4,096": _case("return torch.median(x, -1)", _of("8, 4096")),
        "7th of 8 × 4,096": _case("return torch.kthvalue(x, 7)", _of("8, 4096")),
        "sampling by the top 0.9 of 3 × 5,000": _case(
            "values, places = torch.sort(x, descending=True)\n"
            "shares = values.softmax(-1).cumsum(-1)\n"
            "return torch.where(shares < 0.9, values, -1e9), places",
            _of("3, 5000"),
        ),
        "draw of the top 50 of 3 × 5,000": _case(
            "values, places = torch.topk(x, 50)\n"
            "shares = values.softmax(-1).cumsum(-1)\n"
            "drawn = torch.searchsorted(shares, y)\n"
            "return places.gather(-1, drawn.clamp(max=49))",
            _of("3, 5000"), "torch.rand(3, 1)",
        ),
        "draw of 3 × 5,000 by exponentials": _case(
            "return (x.softmax(-1) / y).argmax(-1)",
            _of("3, 5000"), "torch.empty(3, 5000).exponential_()",
        ),
        "draw of 32 × 50,000 by exponentials": _case(
            "return (x.softmax(-1) / y).argmax(-1)",
            _of("32, 50_000"), "torch.empty(32, 50_000).exponential_()",
        ),
    },
    "statistics": {
        f"{name} of {shape.replace('_', ',').replace(', ', ' × ')}": _case(
            f"return {body}", _of(shape)
        )
        for name, body in {
            "mean": "x.mean(-1)",
            "var": "x.var(-1)",
            "var_mean": "torch.var_mean(x, -1)",
            "norm": "x.norm(dim=-1)",
            "1-norm": "x.norm(p=1, dim=-1)",
            "argmax": "x.argmax(-1)",
            "maximum with its place": "x.max(-1)",
            "logsumexp": "x.logsumexp(-1)",
            "softmax": "x.softmax(-1)",
            "running sum": "x.cumsum(-1)",
            "mean, deviation, extremes": "x.mean(-1), x.std(-1), x.amax(-1), x.amin(-1)",
        }.items()
        for shape in (LONG, WIDE, SHORT)
    }
    | {
        f"{name} of 20,011 × 96 along 0": _case(f"return {body}", _of(TALL))
        for name, body in {
            "sum": "x.sum(0)",
            "var_mean": "torch.var_mean(x, 0)",
            "argmax": "x.argmax(0)",
            "softmax": "x.softmax(0)",
            "running sum": "x.cumsum(0)",
            "norm": "x.norm(dim=0)",
        }.items()
    }
    | {
        "maximum of 3,000 × 333 along 0": _case("return x.amax(0)", _of("3000, 333")),
        "sum of 3,000 × 333 along 0": _case("return x.sum(0)", _of("3000, 333")),
        "maximum of 3,000 × 333 bf16 along 0": _case(
            "return x.amax(0)", _of("3000, 333") + ".bfloat16()"
        ),
        "sum of 3,001 × 2,003 along 0": _case("return x.sum(0)", _of("3001, 2003")),
        "running sum of 3 × 300,007 i64": _case(
            "return x.cumsum(-1)", "torch.randint(0, 1000, (3, 300_007))"
        ),
        "running sum of 100,000 × 8": _case("return x.cumsum(-1)", _of("100_000, 8")),
        "mean of 1 × 1,000,003": _case("return x.mean()", _of("1_000_003")),
        "sum of 3 × 300,007 f64": _case("return x.sum(-1)", _of(LONG, ", dtype=torch.float64")),
        "sum of 3 × 300,007 i64": _case(
            "return x.sum(-1)", "torch.randint(0, 1000, (3, 300_007))"
        ),
        "mean of 3 × 300,007 bf16": _case("return x.mean(-1)", _of(LONG) + ".bfloat16()"),
        "running product of 3 × 300,007": _case("return x.cumprod(-1)", _of(LONG)),
        "running log of sums of 3 × 300,007": _case("return x.logcumsumexp(-1)", _of(LONG)),
        "running maximum of 3 × 300,007": _case("return x.cummax(-1)", _of(LONG)),
        "running sum of 3,000 × 100 along 0": _case("return x.cumsum(0)", _of("3000, 100")),
        "argmax of 3 × 50,000": _case("return x.argmax(-1)", _of("3, 50_000")),
    },
    "products": {
        **{
            f"linear of {n}³, f32": _case(f"nn.Linear({n}, {n}, bias=False)", _of(f"{n}, {n}"))
            for n in (512, 1024, 2048)
        },
        **{
            f"product of two inputs of {n}³": _case("return x @ y", *[_of(f"{n}, {n}")] * 2)
            for n in (512, 1024, 2048)
        },
        **{
            f"weight gradient of {n}³": _case("return y.T @ x", *[_of(f"{n}, {n}")] * 2)
            for n in (512, 1024)
        },
        "product by a transposed weight of 1,024³": _case(
            "return x @ y.T", *[_of("1024, 1024")] * 2
        ),
        "product of 333 × 517 by 517 × 211": _case(
            "return x @ y", _of("333, 517"), _of("517, 211")
        ),
        "product of 257 × 129 by 129 × 1,031 f64": _case(
            "return x @ y", *[_of(s, ", dtype=torch.float64") for s in ("257, 129", "129, 1031")]
        ),
        "product of 1,000 × 333 by 333 × 777": _case(
            "return x @ y", _of("1000, 333"), _of("333, 777")
        ),
        "linear of 256 × 1,001 by 1,001 × 192": _case("nn.Linear(1001, 192)", _of("256, 1001")),
        "product of 384³ bf16": _case("return x @ y", *[_of("384, 384") + ".bfloat16()"] * 2),
        "linear of 7 × 1,000 by 1,000 × 3,000": _case("nn.Linear(1000, 3000)", _of("7, 1000")),
        "linear of 1 × 4,096 by 4,096 × 4,096": _case("nn.Linear(4096, 4096)", _of("1, 4096")),
        "1,000 products of 8 × 8": _case("return torch.bmm(x, y)", *[_of("1000, 8, 8")] * 2),
        "500 products of 17 × 23 by 23 × 9": _case(
            "return torch.bmm(x, y)", _of("500, 17, 23"), _of("500, 23, 9")
        ),
        "5,000 products of 3 × 3": _case("return torch.bmm(x, y)", *[_of("5000, 3, 3")] * 2),
        "product of a matrix of 3,001 × 2,003 by a vector": _case(
            "return x @ y", _of("3001, 2003"), _of("2003")
        ),
        "product of a vector by a matrix of 3,001 × 2,003": _case(
            "return y @ x", _of("3001, 2003"), _of("3001")
        ),
        "product of 3 × 2,000 by 2,000 × 1,000": _case(
            "return x @ y", _of("3, 2000"), _of("2000, 1000")
        ),
        "outer product of 2,000 by 1,500": _case(
            "return torch.outer(x, y)", _of("2000"), _of("1500")
        ),
        "attention of 12 heads × 197 × 64": _case(
            "return F.scaled_dot_product_attention(x, y, z)", *[_of("1, 12, 197, 64")] * 3
        ),
        "causal attention of 8 heads × 501 × 80": _case(
            "return F.scaled_dot_product_attention(x, y, z, is_causal=True)",
            *[_of("1, 8, 501, 80")] * 3,
        ),
        "attention over 20 of 2,048 keys, 32 heads for 8": _case(
            "seen = torch.arange(2048) <= w\nreturn F.scaled_dot_product_attention("
            "x, y, z, attn_mask=seen[None, None], enable_gqa=True)",
            *(_of(each) for each in ("1, 32, 1, 64", *["1, 8, 2048, 64"] * 2)),
            "torch.tensor([19])",
        ),
        "attention over 500 of 2,048 keys, 32 heads for 8": _case(
            "seen = torch.arange(2048) <= w\nreturn F.scaled_dot_product_attention("
            "x, y, z, attn_mask=seen[None, None], enable_gqa=True)",
            *(_of(each) for each in ("1, 32, 1, 64", *["1, 8, 2048, 64"] * 2)),
            "torch.tensor([499])",
        ),
        "attention over 2,000 of 2,048 keys, 32 heads for 8": _case(
            "seen = torch.arange(2048) <= w\nreturn F.scaled_dot_product_attention("
            "x, y, z, attn_mask=seen[None, None], enable_gqa=True)",
            *(_of(each) for each in ("1, 32, 1, 64", *["1, 8, 2048, 64"] * 2)),
            "torch.tensor([1999])",
        ),
        "attention of one query over 1,237 keys": _case(
            "return F.scaled_dot_product_attention(x, y, z)",
            _of("4, 16, 1, 64"), *[_of("4, 16, 1237, 64")] * 2,
        ),
    },
    "images, channels last": {
        f"{name}, channels last": _case(
            f"nn.Sequential({body}).eval().to(memory_format=torch.channels_last)",
            _of(shape, ").to(memory_format=torch.channels_last"),
        )
        for name, body, shape in (
            ("3 × 3 of 1 × 64 × 56 × 56", "nn.Conv2d(64, 64, 3, padding=1)", "1, 64, 56, 56"),
            ("3 × 3 of 1 × 256 × 14 × 14", "nn.Conv2d(256, 256, 3, padding=1)", "1, 256, 14, 14"),
            ("1 × 1 of 4 × 128 × 29 × 29", "nn.Conv2d(128, 256, 1)", "4, 128, 29, 29"),
            ("1 × 1 of 1 × 256 × 56 × 56", "nn.Conv2d(256, 64, 1)", "1, 256, 56, 56"),
            ("7 × 7 by 2 of 3 × 224 × 224", "nn.Conv2d(3, 64, 7, 2, 3)", "1, 3, 224, 224"),
            ("depthwise 7 × 7 of 1 × 96 × 56 × 56", "nn.Conv2d(96, 96, 7, 1, 3, groups=96)",
             "1, 96, 56, 56"),
            ("means 2 × 2 of 2 × 64 × 56 × 56", "nn.AvgPool2d(2)", "2, 64, 56, 56"),
            ("batch norm and ReLU of 2 × 64 × 56 × 56", "nn.BatchNorm2d(64), nn.ReLU()",
             "2, 64, 56, 56"),
            ("two 3 × 3 of 1 × 64 × 56 × 56",
             "nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)",
             "1, 64, 56, 56"),
        )
    },
    "images": {
        "convolution 3 × 3 of 2 × 64 × 57 × 57": _case(
            "nn.Conv2d(64, 96, 3, padding=1)", _of("2, 64, 57, 57")
        ),
        "convolution 3 × 3 of 2 × 64 × 64 × 64": _case(
            "nn.Conv2d(64, 96, 3, padding=1)", _of("2, 64, 64, 64")
        ),
        "pixels of 2 × 57 × 57 × 96 as planes": _case(
            "return x.permute(0, 3, 1, 2).contiguous()", _of("2, 57, 57, 96")
        ),
        "convolution 3 × 3 of 1 × 256 × 14 × 14 by an input": _case(
            "return F.conv2d(x, y, padding=1)", _of("1, 256, 14, 14"), _of("256, 256, 3, 3")
        ),
        "convolution 3 × 3 of 1 × 128 × 28 × 28 by an input": _case(
            "return F.conv2d(x, y, padding=1)", _of("1, 128, 28, 28"), _of("128, 128, 3, 3")
        ),
        "convolution 1 × 1 of 4 × 256 × 28 × 28 by an input": _case(
            "return F.conv2d(x, y)", _of("4, 256, 28, 28"), _of("512, 256, 1, 1")
        ),
        "convolution 7 × 7 by 2 of 3 × 224 × 224": _case(
            "nn.Conv2d(3, 64, 7, stride=2, padding=3)", _of("1, 3, 224, 224")
        ),
        "convolution 1 × 1 of 4 × 128 × 29 × 29": _case(
            "nn.Conv2d(128, 256, 1)", _of("4, 128, 29, 29")
        ),
        "depthwise convolution 3 × 3 of 2 × 96 × 57 × 57": _case(
            "nn.Conv2d(96, 96, 3, padding=1, groups=96)", _of("2, 96, 57, 57")
        ),
        "depthwise convolution 7 × 7 of 1 × 96 × 56 × 56": _case(
            "nn.Conv2d(96, 96, 7, padding=3, groups=96)", _of("1, 96, 56, 56")
        ),
        "depthwise convolution 5 × 5 of 2 × 64 × 41 × 43": _case(
            "nn.Conv2d(64, 64, 5, padding=2, groups=64)", _of("2, 64, 41, 43")
        ),
        "depthwise convolution 3 × 3 by 2 of 2 × 96 × 57 × 57": _case(
            "nn.Conv2d(96, 96, 3, padding=1, stride=2, groups=96)", _of("2, 96, 57, 57")
        ),
        "depthwise convolution 7 × 7 of 1 × 96 × 56 × 56 by an input": _case(
            "return F.conv2d(x, y, padding=3, groups=96)",
            _of("1, 96, 56, 56"), _of("96, 1, 7, 7"),
        ),
        "convolution by 8 groups of 1 × 64 × 40 × 41": _case(
            "nn.Conv2d(64, 64, 3, padding=1, groups=8)", _of("1, 64, 40, 41")
        ),
        "dilated convolution of 1 × 32 × 65 × 65": _case(
            "nn.Conv2d(32, 48, 3, dilation=2, padding=2)", _of("1, 32, 65, 65")
        ),
        "convolution of 4 × 80 × 1,501, width 5": _case(
            "nn.Conv1d(80, 128, 5, padding=2)", _of("4, 80, 1501")
        ),
        "transposed convolution of 1 × 64 × 31 × 31": _case(
            "nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)", _of("1, 64, 31, 31")
        ),
        "maxima 3 × 3 by 2 of 2 × 64 × 113 × 113": _case(
            "return F.max_pool2d(x, 3, 2, 1)", _of("2, 64, 113, 113")
        ),
        "means 5 × 5 of 1 × 32 × 99 × 99": _case(
            "return F.avg_pool2d(x, 5, 1, 2)", _of("1, 32, 99, 99")
        ),
        "means over images of 8 × 512 × 7 × 7": _case(
            "return F.adaptive_avg_pool2d(x, 1)", _of("8, 512, 7, 7")
        ),
        "maxima 5 × 5 of 1 × 128 × 40 × 40": _case(
            "return F.max_pool2d(x, 5, 1, 2)", _of("1, 128, 40, 40")
        ),
        "maxima 13 × 13 of 1 × 128 × 20 × 20": _case(
            "return F.max_pool2d(x, 13, 1, 6)", _of("1, 128, 20, 20")
        ),
        "means 8 × 8 by 8 of 8 × 64 × 56 × 56": _case(
            "return F.avg_pool2d(x, 8)", _of("8, 64, 56, 56")
        ),
        "means of 6 × 6 cells of 1 × 512 × 33 × 33": _case(
            "return F.adaptive_avg_pool2d(x, 6)", _of("1, 512, 33, 33")
        ),
        "maxima of 7 × 7 cells of 4 × 64 × 50 × 50": _case(
            "return F.adaptive_max_pool2d(x, 7)", _of("4, 64, 50, 50")
        ),
        "maxima 2 × 2 of 4 × 64 × 64 × 64, put back": _case(
            "found, places = F.max_pool2d(x, 2, return_indices=True)\n"
            "return F.max_unpool2d(found, places, 2)",
            _of("4, 64, 64, 64"),
        ),
        "patches 3 × 3 of 4 × 16 × 48 × 48": _case(
            "return F.unfold(x, 3, padding=1)", _of("4, 16, 48, 48")
        ),
        "sums of patches 3 × 3 in 4 × 16 × 48 × 48": _case(
            "return F.fold(x, (48, 48), 3, padding=1)", _of("4, 144, 2304")
        ),
        "bilinear 1 × 16 × 61 × 61 to 128 × 128": _case(
            'return F.interpolate(x, (128, 128), mode="bilinear")', _of("1, 16, 61, 61")
        ),
        "nearest 2 × 32 × 50 × 50 to 100 × 100": _case(
            'return F.interpolate(x, (100, 100), mode="nearest")', _of("2, 32, 50, 50")
        ),
        "bicubic 1 × 3 × 100 × 100 to 224 × 224": _case(
            'return F.interpolate(x, (224, 224), mode="bicubic")', _of("1, 3, 100, 100")
        ),
        "nearest 2 × 32 × 64 × 64 to 128 × 128": _case(
            'return F.interpolate(x, scale_factor=2, mode="nearest")', _of("2, 32, 64, 64")
        ),
        "pixels of 2 × 64 × 50 × 50 to 100 × 100": _case(
            "return F.pixel_shuffle(x, 2)", _of("2, 64, 50, 50")
        ),
        "averaged 1 × 3 × 224 × 224 to 112 × 112": _case(
            'return F.interpolate(x, (112, 112), mode="bicubic", antialias=True)',
            _of("1, 3, 224, 224"),
        ),
        "grid sample of 1 × 8 × 64 × 64": _case(
            "return F.grid_sample(x, y, align_corners=False)",
            _of("1, 8, 64, 64"), "torch.rand(1, 80, 80, 2) * 2 - 1",
        ),
        "spectrum of 64 × 1,024": _case(
            "return torch.view_as_real(torch.fft.rfft(x))", _of("64, 1024")
        ),
        "spectrum of 100 × 400": _case(
            "return torch.view_as_real(torch.fft.rfft(x))", _of("100, 400")
        ),
        "complex transform of 64 × 1,024": _case(
            "return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))",
            _of("64, 1024, 2"),
        ),
        "complex transform of 8 × 4,096": _case(
            "return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))",
            _of("8, 4096, 2"),
        ),
        **{
            f"complex transform of 1,000 × {length}": _case(
                "return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))",
                _of(f"1000, {length}, 2"),
            )
            for length in (9, 12, 16, 24, 64)
        },
        "inverse spectrum of 64 × 1,024": _case(
            "return torch.fft.irfft(torch.view_as_complex(x))", _of("64, 513, 2")
        ),
        "transform of 4 planes of 128 × 128": _case(
            "return torch.view_as_real(torch.fft.fft2(torch.view_as_complex(x)))",
            _of("4, 128, 128, 2"),
        ),
        "sizes of spectra of 1 × 16,000 over time": _case(
            "return torch.stft(x, 400, 160, window=y, return_complex=True).abs()",
            _of("1, 16000"), "torch.hann_window(400)",
        ),
        "mel spectrogram of 2 × 48,000": _case(
            "sizes = torch.stft(x, 400, 160, window=y, return_complex=True).abs() ** 2\n"
            "return (sizes.transpose(1, 2) @ z).clamp(min=1e-10).log10()",
            _of("2, 48_000"), "torch.hann_window(400)", "torch.rand(201, 80)",
        ),
        "group norm of 2 × 96 × 33 × 33": _case(
            "return F.group_norm(x, 8)", _of("2, 96, 33, 33")
        ),
        "padding by reflection of 1 × 32 × 101 × 101": _case(
            'return F.pad(x, (3, 3, 3, 3), mode="reflect")', _of("1, 32, 101, 101")
        ),
        "padding all around of 1 × 32 × 101 × 101": _case(
            'return F.pad(x, (3, 3, 3, 3), mode="circular")', _of("1, 32, 101, 101")
        ),
        "padding by zeros of 1 × 32 × 101 × 101": _case(
            "return F.pad(x, (3, 3, 3, 3))", _of("1, 32, 101, 101")
        ),
    },
    "rows and places": {
        "layer norm of 1,000 × 1,001": _case("return F.layer_norm(x, (1001,))", _of("1000, 1001")),
        "layer norm of 4,096 × 77": _case("return F.layer_norm(x, (77,))", _of("4096, 77")),
        "layer norm of 512 × 768 bf16": _case(
            "return F.layer_norm(x, (768,))", _of("512, 768") + ".bfloat16()"
        ),
        "RMS norm of 300 × 3,000": _case("return F.rms_norm(x, (3000,))", _of("300, 3000")),
        "cross entropy of 256 × 10,007": _case(
            "return F.cross_entropy(x, y)", _of("256, 10_007"), "torch.randint(0, 10_007, (256,))"
        ),
        "sum over the middle of 31 × 257 × 63": _case("return x.sum(1)", _of("31, 257, 63")),
        "sum over first and last of 31 × 257 × 63": _case(
            "return x.sum((0, 2))", _of("31, 257, 63")
        ),
        "any of 2,000 × 501": _case("return (x > 4).any(-1)", _of("2000, 501")),
        "gather of 1,000 × 500 out of 1,000 × 2,000": _case(
            "return x.gather(1, y)", _of("1000, 2000"), "torch.randint(0, 2000, (1000, 500))"
        ),
        "rows 5,000 of 20,000 × 65": _case(
            "return x[y]", _of("20_000, 65"), "torch.randint(0, 20_000, (5000,))"
        ),
        "columns 300 of 2,000 × 1,000": _case(
            "return x[:, y]", _of("2000, 1000"), "torch.randint(0, 1000, (300,))"
        ),
        "index_add of 5,000 × 64 into 1,000 × 64": _case(
            "return x.index_add(0, y, z)",
            _of("1000, 64"), "torch.randint(0, 1000, (5000,))", _of("5000, 64"),
        ),
        "scatter_add of 200,000 into 10,000": _case(
            "return x.scatter_add(0, y, z)",
            _of("10_000"), "torch.randint(0, 10_000, (200_000,))", _of("200_000"),
        ),
        "scatter of 1,000 × 64 into 1,000 × 1,000": _case(
            "return x.scatter(1, y, z)",
            _of("1000, 1000"), "torch.rand(1000, 1000).argsort(-1)[:, :64]", _of("1000, 64"),
        ),
        "scatter_add of 400 into 10,000": _case(
            "return x.scatter_add(0, y, z)",
            _of("10_000"), "torch.randint(0, 10_000, (400,))", _of("400"),
        ),
        "scatter_add of 1,000 × 64 into 1,000 × 1,000": _case(
            "return x.scatter_add(1, y, z)",
            _of("1000, 1000"), "torch.randint(0, 1000, (1000, 64))", _of("1000, 64"),
        ),
        "index_add of 500 × 768 into 1,000 × 768": _case(
            "return x.index_add(0, y, z)",
            _of("1000, 768"), "torch.randint(0, 1000, (500,))", _of("500, 768"),
        ),
        "maxima of 50,000 at 1,000 places": _case(
            'return x.scatter_reduce(0, y, z, "amax")',
            _of("1000"), "torch.randint(0, 1000, (50_000,))", _of("50_000"),
        ),
        "means of 5,000 × 64 at 1,000 places": _case(
            'return x.index_reduce(0, y, z, "mean")',
            _of("1000, 64"), "torch.randint(0, 1000, (5000,))", _of("5000, 64"),
        ),
        "bags of 20 of 50,000 × 64": _case(
            'return F.embedding_bag(y, x, mode="sum")',
            _of("50_000, 64"), "torch.randint(0, 50_000, (512, 20))",
        ),
        "histogram of 100,000": _case("return torch.histc(x, 64, -4, 4)", _of("100_000")),
        "histogram of 1,000,000 in 100": _case(
            "return torch.histc(x, 100, -3, 3)", _of("1_000_000")
        ),
        "places of a mask of 100,000": _case(
            "return (x > 0).cumsum(0)", _of("100_000")
        ),
        "one-hot of 5,000 by 100": _case(
            "return F.one_hot(x, 100)", "torch.randint(0, 100, (5000,))"
        ),
        "searchsorted of 100,000 in 1,000": _case(
            "return torch.searchsorted(x.cumsum(0), y * 1000)", "torch.rand(1000)", _of("100_000")
        ),
        "bucketize of 300,007 among 10": _case(
            "return torch.bucketize(x, y.sort().values)", _of("300_007"), _of("10")
        ),
        "unfolded windows 64 of 100,000": _case(
            "return x.unfold(0, 64, 16).mean(-1)", _of("100_000")
        ),
    },
    "elements": {
        "Black–Scholes of 1,000,000": _case(
            "root = z.sqrt()\n"
            "first = ((x / y).log() + (0.02 + 0.5 * 0.3 * 0.3) * z) / (0.3 * root)\n"
            "second = first - 0.3 * root\n"
            "sold = y * (-0.02 * z).exp()\n"
            "def below(value):\n"
            "    return 0.5 * (1 + torch.erf(value / math.sqrt(2)))\n"
            "return x * below(first) - sold * below(second), "
            "sold * below(-second) - x * below(-first)",
            *["torch.rand(1_000_000) + 0.5"] * 3,
        ),
        "sum of two of 1,000,003": _case("return x + y", *[_of("1_000_003")] * 2),
        "GELU of 500,009": _case("return F.gelu(x)", _of("500_009")),
        "SiLU of 500,009 bf16": _case("return F.silu(x)", _of("500_009") + ".bfloat16()"),
        "GELU of 500,009 f16": _case("return F.gelu(x)", _of("500_009") + ".half()"),
        "GELU of 500,009 bf16": _case("return F.gelu(x)", _of("500_009") + ".bfloat16()"),
        "GELU by tanh of 500,009 bf16": _case(
            'return F.gelu(x, approximate="tanh")', _of("500_009") + ".bfloat16()"
        ),
        "sine of 300,007 f64": _case("return x.sin()", _of("300_007", ", dtype=torch.float64")),
        "exp of 300,007 f64": _case("return x.exp()", _of("300_007", ", dtype=torch.float64")),
        "tanh of 500,009": _case("return x.tanh()", _of("500_009")),
        "power 2.5 of 300,007": _case("return x.abs() ** 2.5", _of("300_007")),
        "remainder of 300,007 i64": _case(
            "return x % y",
            "torch.randint(0, 100_000, (300_007,))", "torch.randint(1, 99, (300_007,))",
        ),
        "product of 300,007 i64": _case("return x * y", *["torch.randint(0, 999, (300_007,))"] * 2),
        "broadcast sum of 1,001 × 1 and 1 × 999": _case(
            "return x + y", _of("1001, 1"), _of("1, 999")
        ),
        "transposed sum of 1,001 × 999": _case(
            "return x + y.T", _of("1001, 999"), _of("999, 1001")
        ),
        "transposition of 256 × 256": _case("return x.t().contiguous()", _of("256, 256")),
        "transposition of 512 × 512": _case("return x.t().contiguous()", _of("512, 512")),
        "images of 8 × 64 × 3,136 to channels last": _case(
            "return x.transpose(1, 2).contiguous()", _of("8, 64, 3136")
        ),
        "channels last of 8 × 3,136 × 64 to images": _case(
            "return x.transpose(1, 2).contiguous()", _of("8, 3136, 64")
        ),
        "transposition of 1,500 × 2,003": _case("return x.T.contiguous()", _of("1500, 2003")),
        "dims of 256 × 256 × 3 × 3 reversed but for two": _case(
            "return x.permute(2, 3, 1, 0).contiguous()", _of("256, 256, 3, 3")
        ),
        "transposition of 8 × 197 × 12 × 64": _case(
            "return x.transpose(1, 2).contiguous()", _of("8, 197, 12, 64")
        ),
        "every third of 900,021": _case("return x[::3] * 2", _of("900_021")),
        "every second of 1,000 × 1,000": _case("return x[:, ::2] + 1", _of("1000, 1000")),
        "each twice of 1,000 × 500": _case("return x.repeat_interleave(2, -1)", _of("1000, 500")),
        "three times beside each other of 500 × 333": _case(
            "return x.repeat(1, 3)", _of("500, 333")
        ),
        "in turns of 1,000 × 500": _case(
            "return torch.stack([x, y], -1).flatten(-2)", *[_of("1000, 500")] * 2
        ),
        "rotary pairs of 8 × 256 × 64": _case(
            "a, b = x[..., ::2], x[..., 1::2]\n"
            "return torch.stack([a * y - b * z, a * z + b * y], -1).flatten(-2)",
            _of("8, 256, 64"), *[_of("256, 32")] * 2,
        ),
        "complex product of 1,000 × 100": _case(
            "pairs = torch.view_as_complex(x) * torch.view_as_complex(y)\n"
            "return torch.view_as_real(pairs)",
            *[_of("1000, 100, 2")] * 2,
        ),
        "turned round of 300 × 1,003": _case("return x.flip(-1)", _of("300, 1003")),
        "roll of 300 × 1,003": _case("return x.roll(7, -1)", _of("300, 1003")),
        "parts joined of 500 × 301 and 500 × 203": _case(
            "return torch.cat([x, y], -1)", _of("500, 301"), _of("500, 203")
        ),
        "parts joined of 500 × 256 and 300 × 256 along 0": _case(
            "return torch.cat([x, y])", _of("500, 256"), _of("300, 256")
        ),
        "lower triangle of 1,001 × 1,001": _case("return x.tril()", _of("1001, 1001")),
        "where of 1,001 × 500": _case(
            "return torch.where(x > 0, x, y)", _of("1001, 500"), _of("500")
        ),
        "bf16 from 1,000,003 f32": _case("return x.bfloat16()", _of("1_000_003")),
        "distances of 300 to 400 in 16": _case(
            "return torch.cdist(x, y)", _of("300, 16"), _of("400, 16")
        ),
    },
}  # fmt: skip
CASES: dict[str, Case] = {name: case for group in _GROUPS.values() for name, case in group.items()}
GROUPS: dict[str, tuple[str, ...]] = {name: tuple(group) for name, group in _GROUPS.items()}
