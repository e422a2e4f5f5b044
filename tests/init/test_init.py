"""`aotc init`: the spec that it writes builds as it is, and all that is wrong is a typed error."""

import ast
import inspect
import json
import subprocess
import sys

import pytest

from aotc.aot.init import errors

torch = pytest.importorskip("torch")

HEAD = "import torch\nfrom torch import nn\n\n\n"
NET = """class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x).relu()


class Net(nn.Module):
    def __init__(self, width: int, name="plain"):
        super().__init__()
        self.first, self.block = nn.Linear(10, width), Block(width)

    def forward(self, x, mask=None):
        return self.block(self.first(x))
"""


def made(layers, call="x", arguments="self, x"):
    """A class `Net` of some layers."""
    lines = [f"        self.{name} = {layer}" for name, layer in layers.items()]
    return "\n".join(["class Net(nn.Module):", "    def __init__(self):",
                      "        super().__init__()", *lines, "", f"    def forward({arguments}):",
                      f"        return {call}", ""])  # fmt: skip


# Name → the text of a file, and what stands in the spec.
MODELS = {
    "linear": (made({"a": "nn.Linear(5, 3)"}, "self.a(x)"), "torch.randn(2, 5)"),
    "image": (made({"a": "nn.Conv2d(3, 8, 3)"}, "self.a(x)"), "torch.randn(2, 3, 32, 32)"),
    "large image": (
        made({"a": "nn.Conv2d(1, 8, 3)", "b": "nn.Linear(8 * 62 * 62, 4)"},
             "self.b(self.a(x).flatten(1))"),
        "torch.randn(2, 1, 64, 64)",
    ),
    "audio": (made({"a": "nn.Conv1d(2, 4, 5)"}, "self.a(x)"), "torch.randn(2, 2, 64)"),
    "text": (
        made({"a": "nn.Embedding(70, 8)", "b": "nn.Linear(8, 2)"}, "self.b(self.a(x)).mean(1)"),
        "torch.randint(0, 70, (2, 16))",
    ),
    "attention": (
        made({"a": "nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)"}, "self.a(x)"),
        "torch.randn(2, 16, 16)",
    ),
    "sequence": (made({"a": "nn.GRU(6, 4)"}, "self.a(x)[0]"), "torch.randn(16, 2, 6)"),
    "half": (
        made({"a": "nn.Linear(5, 3).to(torch.bfloat16)"}, "self.a(x)"),
        "torch.randn(2, 5, dtype=torch.bfloat16)",
    ),
    "ids and mask": (
        made({"a": "nn.Embedding(70, 8)"}, "self.a(ids) * mask.unsqueeze(-1)", "self, ids, mask"),
        '"mask": torch.ones(2, 16, dtype=torch.bool)',
    ),
    "two widths": (
        made({"a": "nn.Linear(5, 4)", "b": "nn.Linear(7, 4)"}, "self.a(x) + self.b(y)",
             "self, x, y"),
        '"y": torch.randn(2, 7)',
    ),
    "a number": (
        made({"a": "nn.Linear(5, 4)"}, "self.a(x) * scale", "self, x, scale: float"),
        '"scale": 1.0',
    ),
    "any arguments": (
        made({"a": "nn.Linear(5, 4)"}, "self.a(xs[0])", "self, *xs"), "(\n    torch.randn(2, 5),"
    ),
    "by place": (made({"a": "nn.Linear(5, 4)"}, "self.a(x)", "self, x, /"), "(\n    torch.randn"),
    "by name": (made({"a": "nn.Linear(5, 4)"}, "self.a(x)", "self, *, x"), '"x": torch.randn'),
    "no layers": (made({}, "x * 2"), "torch.randn(2, 16)"),
    "no arguments": (made({"a": "nn.Linear(5, 4)"}, "self.a.weight * 2", "self"), "= ()"),
    "an instance": ("model = nn.Linear(5, 4)\n", "from net import model"),
    "a maker": ("def build_model(width=6):\n    return nn.Linear(width, 4)\n", "randn(2, 6)"),
    "one of two": (NET.replace("width: int", "width=6"), "Net()"),
}  # fmt: skip


def first_call(path):
    """What the model of a spec gives on its example inputs."""
    from aotc.aot.capture.spec import load_specs

    for name in ("net", "code", "my-net"):
        sys.modules.pop(name, None)
    spec = load_specs(str(path))[0]
    with torch.no_grad():
        return spec.module(*spec.arguments, **spec.keyword_arguments)


@pytest.mark.parametrize("name", MODELS)
def test_the_inputs_are_those_that_the_model_takes(aotc, tmp_path, name):
    text, expected = MODELS[name]
    (tmp_path / "net.py").write_text(HEAD + text)
    code, out, found = aotc("init", tmp_path / "net.py", "-o", tmp_path / "spec.py")
    assert code == 0, found
    assert expected in (tmp_path / "spec.py").read_text()
    assert f"next     aotc build {tmp_path / 'spec.py'} -o BUNDLE" in out
    first_call(tmp_path / "spec.py")


@pytest.mark.parametrize("name", ["net.py", "code.py", "my-net.py", "below/net.py", "../net.py"])
def test_the_spec_finds_the_file_wherever_it_lies(aotc, tmp_path, name):
    """`code` is a module of Python's own, `my-net` no name of a module."""
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / name).write_text(HEAD + MODELS["linear"][0])
    assert aotc("init", folder / name, "-o", folder / "spec.py")[0] == 0
    first_call(folder / "spec.py")


def test_a_spec_of_a_module_builds(aotc, tmp_path, monkeypatch, cache):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "models.py").write_text(HEAD + NET)
    monkeypatch.syspath_prepend(tmp_path)
    spec, bundle = tmp_path / "ranker.py", tmp_path / "bundle"
    words = ("--argument", "width=12", "--argument", "name=fast", "--input", "x=f32[3,10]")
    code, out, found = aotc("init", "shop.models:Net", "-o", spec, *words, "--json")
    assert code == 0, found
    record = json.loads(out)
    assert record["schema"] == "aotc.init/1"
    assert record["inputs"] == {"x": "f32[3,10]"}
    assert record["text"] == spec.read_text()
    assert "Net(width=12, name='fast')" in spec.read_text()
    code, _, found = aotc("build", spec, "-o", bundle, "--cache-dir", cache, "--quiet")
    assert code == 0, found
    assert "x: f32[3, 10]" in aotc("inspect", bundle)[1]


def test_commented_sizes_are_right(aotc, tmp_path, cache):
    """The lines of the spec that are comments make a bundle of a dynamic batch."""
    (tmp_path / "net.py").write_text(HEAD + MODELS["linear"][0])
    spec = tmp_path / "spec.py"
    assert aotc("init", tmp_path / "net.py", "-o", spec)[0] == 0
    text = spec.read_text()
    marks = ("# batch", "# dynamic_shapes", "#     ", "# }")
    lines = [line[2:] if line.startswith(marks) else line for line in text.splitlines()]
    spec.write_text("\n".join(lines))
    words = ("-o", tmp_path / "bundle", "--cache-dir", cache, "--quiet")
    assert aotc("build", spec, *words)[0] == 0
    assert "batch" in aotc("inspect", tmp_path / "bundle")[1]


SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 4, "max_position_embeddings": 64}  # fmt: skip
FOLDERS = {
    "bert": ("BertConfig", "BertForSequenceClassification", SIZES, '"attention_mask"'),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SIZES, "causal_lm(FOLDER, max_length=64, batch"),
    "vit": ("ViTConfig", "ViTModel", {**SIZES, "image_size": 32, "patch_size": 8}, "3, 32, 32)"),
    "t5": (
        "T5Config", "T5ForConditionalGeneration",
        {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4,
         "decoder_start_token_id": 0},
        "seq2seq(FOLDER",
    ),
}  # fmt: skip


@pytest.mark.parametrize("has_weights", [True, False], ids=["weights", "config alone"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_transformers(aotc, tmp_path, monkeypatch, name, has_weights):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config_class, model_class, fields, expected = FOLDERS[name]
    config = getattr(transformers, config_class)(**fields, architectures=[model_class])
    folder, spec = tmp_path / "model folder", tmp_path / "spec.py"
    if has_weights:
        getattr(transformers, model_class)(config).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
    code, out, found = aotc("init", folder, "-o", spec)
    assert code == 0, found
    text = spec.read_text()
    assert (expected.replace("FOLDER", "random_model") if not has_weights else expected) in text
    assert ("random" in out) == (not has_weights)
    first_call(spec)


FOLDERS_REFUSED = {
    "no config": (None, "folder-invalid"),
    "no JSON": ("{", "folder-invalid"),
    "a list": ("[]", "folder-invalid"),
    "no type": ("{}", "init-folder-unknown"),
    "an unknown type": ('{"model_type": "nonsense"}', "init-folder-unknown"),
    "a list for a type": ('{"model_type": [1]}', "init-folder-unknown"),
    "code of its own": ('{"model_type": "x", "auto_map": {"AutoModel": "m.M"}}',
                        "init-folder-unknown"),
    "an unknown class": ('{"model_type": "bert", "architectures": ["Nonsense"]}',
                         "init-folder-unknown"),
    "classes that are no list": ('{"model_type": "bert", "architectures": 3}', "folder-invalid"),
    "wrong fields": ('{"model_type": "bert", "hidden_size": "many"}', "folder-invalid"),
    "sizes that do not fit": ('{"model_type": "bert", "hidden_size": 30}', "folder-invalid"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS_REFUSED)
def test_folders_that_are_refused(aotc, tmp_path, name):
    pytest.importorskip("transformers")
    text, expected = FOLDERS_REFUSED[name]
    (tmp_path / "model").mkdir()
    if text is not None:
        (tmp_path / "model" / "config.json").write_text(text)
    code, out, found = aotc("init", tmp_path / "model", "-o", tmp_path / "spec.py", "--json")
    assert json.loads(out)["code"] == expected, out
    assert (code, "Traceback" in found) == (2, False)
    assert not (tmp_path / "spec.py").exists()


TWO = "class A(nn.Module):\n    pass\n\n\nclass B(nn.Module):\n    pass\n"
# Text of a file, more words, the code of the error.
REFUSED = {
    "two models": (TWO, (), "init-model-unclear"),
    "no model": ("x = 1\n", (), "init-model-absent"),
    "needs width": (NET, (), "init-arguments-missing"),
    "another argument": (NET, ("--argument", "depth=1"), "init-argument-invalid"),
    "no value": (NET, ("--argument", "width"), "init-argument-invalid"),
    "twice": (NET, ("--argument", "width=1", "--argument", "width=2"), "init-argument-invalid"),
    "of another type": (NET, ("--argument", "width=wide"), "spec-import-failed"),
    "it does not run": ("raise RuntimeError('no')\n", (), "spec-import-failed"),
    "it ends": ("raise SystemExit(0)\n", (), "spec-import-failed"),
    "its text is wrong": ("def :\n", (), "spec-import-failed"),
    "no forward": (TWO.partition("\n\n\n")[0], (), "init-inputs-unknown"),
    "sizes beyond guessing": (made({}, "x.view(7, 9)"), (), "init-inputs-unknown"),
    "a spec": ("model = nn.Linear(3, 4)\nexample_inputs = ()\n", (), "init-is-spec"),
    "another input": (MODELS["linear"][0], ("--input", "y=f32[2]"), "init-argument-invalid"),
    "an unknown dtype": (MODELS["linear"][0], ("--input", "x=f31[2]"), "init-argument-invalid"),
    "no sizes": (MODELS["linear"][0], ("--input", "x=f32[0]"), "init-argument-invalid"),
    "a limit of floats": (MODELS["linear"][0], ("--input", "x=f32[2]<3"), "init-argument-invalid"),
    "a high limit": (MODELS["linear"][0], ("--input", "x=i8[2]<300"), "init-argument-invalid"),
    "other sizes": (MODELS["linear"][0], ("--input", "x=f32[2,6]"), "init-model-raised"),
    "a function's argument": ("model = nn.Linear(3, 4)\n", ("--argument", "a=1"),
                              "init-argument-invalid"),
    "a number": ("model = 3\n", (), "spec-model-invalid"),
    **{f"almost an array, {text}": (MODELS["linear"][0], ("--input", f"x={text}"),
                                    "init-argument-invalid")
       for text in ("f32[2,5", "f32(2,5)", "F32[2,5]", "torch.float32[2,5]", "int64", "f32")},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_refused(aotc, tmp_path, name):
    text, words, expected = REFUSED[name]
    (tmp_path / "net.py").write_text(HEAD + text)
    spec = tmp_path / "spec.py"
    code, out, found = aotc("init", tmp_path / "net.py", "-o", spec, *words, "--json")
    record = json.loads(out)
    assert record["code"] == expected, out
    is_raised = expected == "spec-import-failed"
    assert (code, "Traceback" in found, spec.exists()) == (3 if is_raised else 2, False, False)
    assert record["message"][:1] in (record["message"][:1].lower(), "`")


FORMS = {
    "nothing": "`aotc init --help`",
    "owner/model": "hf download owner/model",
    "some-model-base": "hf download some-model-base",
    "{area}/model/config.json": "`aotc init {area}/model`",
    "exported.pt2": "`aotc build exported.pt2",
    "absent.py": "MODEL is the file",
}


@pytest.mark.parametrize("text", FORMS)
def test_what_names_no_model_gets_the_step_that_its_kind_asks(aotc, tmp_path, text):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    word, expected = (each.format(area=tmp_path) for each in (text, FORMS[text]))
    code, out, _ = aotc("init", word, "-o", tmp_path / "spec.py", "--json")
    record = json.loads(out)
    assert code == 2
    assert record["code"] == ("init-file-missing" if text == "absent.py" else "init-model-form")
    assert expected in record["hint"]
    if "config" in text:
        code, out, _ = aotc("build", word, "-o", tmp_path / "bundle", "--json")
        assert expected in json.loads(out)["hint"]


@pytest.mark.parametrize("out", ["taken.py", "spec.txt", "absent/spec.py"])
@pytest.mark.parametrize(
    ("word", "code"), [("absent.py", "init-file-missing"), ("some-model", "init-model-form")]
)
def test_a_wrong_model_is_said_before_a_wrong_place_for_the_spec(aotc, tmp_path, word, code, out):
    (tmp_path / "taken.py").write_text("mine")
    assert json.loads(aotc("init", word, "-o", tmp_path / out, "--json")[1])["code"] == code


def test_of_the_models_own_file_it_is_not_said_that_a_flag_replaces_it(aotc, tmp_path):
    (tmp_path / "net.py").write_text(HEAD + NET)
    _, out, _ = aotc("init", tmp_path / "net.py", "-o", tmp_path / "net.py", "--json")
    assert json.loads(out)["code"] == "init-over-model"
    assert "--force" not in out


def test_a_mistyped_name_and_an_object_for_an_argument(aotc, tmp_path):
    (tmp_path / "net.py").write_text(HEAD + NET)
    code, _, found = aotc("init", f"{tmp_path / 'net.py'}:Nett", "-o", tmp_path / "spec.py")
    assert code == 2
    assert "did you mean `Net`?" in found
    code, _, found = aotc("init", "torch.nn:TransformerEncoder", "-o", tmp_path / "spec.py")
    assert code == 2
    assert "an object is none of its values" in found


def test_inputs_that_a_model_of_transformers_does_not_take(aotc, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 70, "dim": 16, "hidden_dim": 16, "n_layers": 1, "n_heads": 2}
    config = transformers.DistilBertConfig(**sizes, architectures=["DistilBertModel"])
    config.save_pretrained(tmp_path / "encoder")
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, architectures=["GPT2LMHeadModel"]
    )
    config.save_pretrained(tmp_path / "decoder")
    for folder, text, code, expected in (
        ("encoder", "ids=i64[2,16]", "init-argument-invalid", "has no such parameter"),
        ("encoder", "input_ids=f32[2,16]", "init-model-raised", "RuntimeError"),
        ("decoder", "input_ids=i64[2,16]", "init-argument-invalid", "expected no example inputs"),
    ):
        words = ("--input", text, "-o", tmp_path / "spec.py", "--json")
        exit_code, out, _ = aotc("init", tmp_path / folder, *words)
        assert exit_code == 2
        assert json.loads(out)["code"] == code
        assert expected in json.loads(out)["message"]
    assert not (tmp_path / "spec.py").exists()


def test_every_error_of_its_own_is_raised_here():
    codes = {code for *_, code in (*REFUSED.values(), *FOLDERS_REFUSED.values())}
    codes |= {"init-over-model", "init-model-form", "init-file-missing"}  # by other tests here
    own = {value.code for value in vars(errors).values()
           if inspect.isclass(value) and value.__module__ == errors.__name__}  # fmt: skip
    assert own <= codes


def test_nothing_is_replaced_without_a_flag(aotc, tmp_path):
    (tmp_path / "net.py").write_text(HEAD + MODELS["linear"][0])
    spec = tmp_path / "spec.py"
    spec.write_text("mine")
    code, _, found = aotc("init", tmp_path / "net.py", "-o", spec)
    assert (code, spec.read_text()) == (2, "mine")
    assert "--force" in found
    assert aotc("init", tmp_path / "net.py", "-o", spec, "--force")[0] == 0
    assert "example_inputs" in spec.read_text()
    for words in ((), ("--force",)):  # the model itself, and by a link to it
        (tmp_path / "link.py").unlink(missing_ok=True)
        (tmp_path / "link.py").symlink_to("net.py")
        for out in ("net.py", "link.py"):
            assert aotc("init", tmp_path / "net.py", "-o", tmp_path / out, *words)[0] == 2
    assert (tmp_path / "net.py").read_text() == HEAD + MODELS["linear"][0]
    assert aotc("init", tmp_path / "net.py", "-o", tmp_path / "spec.txt")[0] == 2
    assert aotc("init", tmp_path / "net.py", "-o", tmp_path / "absent" / "spec.py")[0] == 7


def test_without_torch_it_names_the_extra(tmp_path):
    (tmp_path / "net.py").write_text("")
    text = (
        "import sys; sys.modules['torch'] = None\n"
        "from aotc.aot.cli.program import run\nsys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", text, "init", tmp_path / "net.py", "-o",
                           tmp_path / "spec.py"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert "aotc[build]" in done.stderr


def test_a_path_of_any_characters_is_itself_in_the_spec():
    """Also bytes that are no UTF-8, and characters beyond the first 65,536."""
    from aotc.aot.init.written import literal

    for text in ("model", 'a "b" \\n', "ünï/\U0001f600", "\udcff", '"""; x', "\x1b[2J\n{}"):
        assert ast.literal_eval(literal(text)) == text
        assert literal(text).isprintable()
        literal(text).encode()
