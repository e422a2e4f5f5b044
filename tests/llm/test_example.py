"""The example for language models: a folder, a bundle, texts, and a server under load.

The model is random and tiny; what the texts are is eager transformers' matter. The processes that
generate and serve cannot import torch, transformers, triton or numpy.
"""

import array
import concurrent.futures
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
transformers = pytest.importorskip("transformers")

from batches import Batches, Request, RequestRefused, zeros  # noqa: E402
from byte_tokens import ByteTokens, LibraryTokens, tokens_of  # noqa: E402
from texts import Text  # noqa: E402

from aotc.runtime import load  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[2] / "examples" / "llm"
SLOTS, MAX_LENGTH, LENGTHS = 3, 48, (24,)
PROMPTS = ["a", "# Title\n\nsome", "a longer prompt than the others"]
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "triton", "numpy")))
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def model():
    import train

    model = train.make(width=32, layers=1).eval()
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() > 1:
                each.mul_(6)
    return model


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory, cache):
    """The example's own spec, of smaller sizes and with shorter decodes, beside the folder of a
    model."""
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("llm")
    model.save_pretrained(folder / "model")
    text = (EXAMPLE / "spec.py").read_text()
    sizes = f"max_length={MAX_LENGTH}, batch={SLOTS}, decode_lengths={LENGTHS}"
    assert "max_length=512, batch=16" in text
    text = text.replace("max_length=512, batch=16", sizes)
    (folder / "spec.py").write_text(text)
    line = ["build", folder / "spec.py", "-o", folder / "b", "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    return folder / "b"


def eager(model, prompt, count):
    """Greedy text of transformers, and whether rounding decided none of its tokens."""
    ids = torch.tensor([ByteTokens().encode(prompt)])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.stack(found.logits)[:, 0].topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 1e-4
    tokens = found.sequences[0, ids.shape[1] :].tolist()
    return Text(ByteTokens().decoder(), ByteTokens.end).more(tokens, is_last=True)


def generate(bundle, *arguments):
    line = [sys.executable, "-c", WITHOUT, str(EXAMPLE / "generate.py"), str(bundle), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=without_path())


def without_path():
    """UTF-8 whatever the locale is: random bytes are no text."""
    return {**os.environ, "PYTHONIOENCODING": "utf-8"}


def test_generate_prints_what_transformers_generates(model, bundle):
    """Several prompts of different lengths, and one that is streamed."""
    done = generate(bundle, *PROMPTS, "--max-tokens", "8")
    assert done.returncode == 0, done.stderr
    expected = [prompt + eager(model, prompt, 8) for prompt in PROMPTS]
    assert all(text in done.stdout for text in expected)
    alone = generate(bundle, PROMPTS[1], "--max-tokens", "8")
    assert alone.stdout == expected[1] + "\n"
    stop = expected[1][-1]
    stopped = generate(bundle, PROMPTS[1], "--max-tokens", "8", "--stop", stop)
    start = len(PROMPTS[1])
    assert stopped.stdout == expected[1][: expected[1].index(stop, start)] + "\n"
    refused = generate(bundle, "x" * MAX_LENGTH, "--max-tokens", "8")
    assert refused.returncode == 1
    assert f"expected at most {MAX_LENGTH} together" in refused.stderr


def test_a_decode_that_reads_less_gives_the_same_tokens(bundle):
    """Sequences of several lengths; one more token than a decode reads is refused."""
    from aotc.runtime.errors import IndexOutOfRange

    with load(bundle) as program, program.session() as session:
        assert set(program.entries) == {"prefill", "decode", *(f"decode_{n}" for n in LENGTHS)}
        batches = Batches(program)
        for prompt in ([5, 6, 7], [8] * 9, [9] * 14):
            batches.add(Request(prompt, 24, seed=3))
        batches.step()
        used = set()
        while not batches.is_idle():
            last = max(batches.positions)
            used.add(next(length for length, _ in batches.decodes if last < length))
            with batches.session.fork() as other:
                arrays = batches.ids[:], batches.positions[:], *batches.sampling
                whole = memoryview(other["decode"](*arrays)["tokens"]).tolist()
            served = dict(batches.active)
            batches.step()
            assert all(each.tokens[-1] == whole[slot] for slot, each in served.items())
        assert used == {*LENGTHS, MAX_LENGTH}
        ids, positions = zeros(SLOTS), zeros(SLOTS)
        positions[1] = LENGTHS[0]
        with pytest.raises(IndexOutOfRange, match=f"{LENGTHS[0]}"):
            session["decode_24"](ids, positions, *batches.sampling)


def test_places_that_no_sequence_has_are_refused(bundle):
    """Numbers below zero are no places from the end, and no two rows of a call are one sequence."""
    from aotc.runtime.errors import AssertionFailed, IndexOutOfRange

    def options(count):
        ones = array.array("f", [1.0] * count)
        return ones, zeros(count), ones, ones, zeros(count)

    def prompt(length, slot):
        ids = memoryview(zeros(2)).cast("B").cast("q", [1, 2])
        return ids, array.array("q", [length]), array.array("q", [slot]), *options(1)

    with load(bundle) as program, program.session() as session:
        good = memoryview(session.prefill(*prompt(2, 0))["tokens"]).tolist()
        for length, slot in ((0, 0), (-1, 0), (3, 0), (2, -1), (2, SLOTS)):
            with pytest.raises(IndexOutOfRange):
                session.prefill(*prompt(length, slot))
        for place in (-1, MAX_LENGTH):
            with pytest.raises(IndexOutOfRange, match=f"expected 0 to {MAX_LENGTH - 1}"):
                session.decode(zeros(SLOTS), array.array("q", [place] * SLOTS), *options(SLOTS))
        assert memoryview(session.prefill(*prompt(2, 0))["tokens"]).tolist() == good
        heat = array.array("f", [float("nan")] * SLOTS)
        with pytest.raises(AssertionFailed, match="sampling is out of its range"):
            session.decode(zeros(SLOTS), zeros(SLOTS), heat, *options(SLOTS)[1:])
        ids = memoryview(zeros(4)).cast("B").cast("q", [2, 2])
        lengths = array.array("q", [2, 2])
        for slot in (0, 1):
            with pytest.raises(AssertionFailed, match="two rows of a call have the same slot"):
                session.prefill(ids, lengths, array.array("q", [slot] * 2), *options(2))
        given = ids, lengths, array.array("q", [1, 0]), *options(2)
        assert memoryview(session.prefill(*given)["tokens"]).tolist() == good * 2


def test_a_text_depends_on_its_seed_alone(bundle):
    """More requests than slots, of several lengths, one cancelled, against each by itself."""
    tokens = ByteTokens()

    def requests():
        return [
            Request(
                tokens.encode(PROMPTS[i % 3]), 4 + i, temperature=0.9, top_k=40, top_p=0.9,
                repetition_penalty=1.2, seed=i,
            )
            for i in range(7)
        ]  # fmt: skip

    with load(bundle) as program:
        batches, together = Batches(program), requests()
        for request in together:
            batches.add(request)
        steps = 0
        while not batches.is_idle():
            batches.step()
            steps += 1
            if steps == 3:
                batches.cancel(together[6])
        assert together[6] not in batches.active.values()
        assert len(batches.free) == SLOTS
        assert steps < sum(4 + i for i in range(6))  # they ran side by side
        for request, alone in zip(together[:6], requests(), strict=False):
            batches.add(alone)
            while not batches.is_idle():
                batches.step()
            assert (alone.tokens, alone.finish) == (request.tokens, "length")
        for bad in (
            Request([], 4),
            Request([1], MAX_LENGTH),
            Request([1], 0),
            Request([999], 4),
            Request([1], 4, top_p=0.0),
            Request([1], 4, temperature=-1.0),
        ):
            with pytest.raises(RequestRefused):
                batches.add(bad)
        assert batches.is_idle()


def test_texts_end_before_a_stop_in_whatever_parts_it_comes():
    for size in (1, 2, 3, 100):
        text = Text(lambda tokens: "".join(map(chr, tokens)), 257, ["END", "é!"])
        said = "".join(
            text.more([ord(c) for c in "so En ENé EEND more"][i : i + size])
            for i in range(0, 20, size)
        )
        assert (said, text.is_stopped) == ("so En ENé E", True)
    decode = ByteTokens().decoder()
    assert [decode([byte]) for byte in "é€".encode()] == ["", "é", "", "", "€"]


def test_a_folder_may_have_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<e>": 0, "hello": 1, "world": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<e>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": [0]}')
    found = tokens_of(tmp_path)
    assert isinstance(found, LibraryTokens)
    assert (found.encode("hello world"), found.end) == ([1, 2], 0)
    more = found.decoder()
    assert more([1]) + more([2]) == "hello world"
    assert isinstance(tokens_of(None), ByteTokens)


HAS_SERVER = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn"))
needs_server = pytest.mark.skipif(not HAS_SERVER, reason="needs aotc[serve]: fastapi, uvicorn")


@pytest.fixture
def server(bundle):
    """The address of a server of two workers."""
    # serve.py starts its workers by its own command line, this one with its blocked imports too.
    line = [sys.executable, "-c", WITHOUT, str(EXAMPLE / "serve.py"), str(bundle)]
    process = subprocess.Popen(
        [*line, "--port", "0", "--workers", "2"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline()
        assert address.startswith("http://127.0.0.1:")
        yield int(address.rpartition(":")[2].partition("/")[0])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def post(port, body):
    """Status, headers and body; asked again where the worker that had it died, as clients do."""
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        except (http.client.HTTPException, OSError):
            continue
        finally:
            connection.close()
    raise AssertionError("no answer in five attempts")


@needs_server
def test_a_server_answers_under_load_while_a_worker_dies(bundle, server):
    """Every answer is the text of its seed, whichever worker gave it and beside whatever else."""
    bodies = [
        {"prompt": PROMPTS[i % 3], "max_tokens": 6, "temperature": 0.8, "seed": i, "top_p": 0.95}
        for i in range(24)
    ]
    workers, killed = set(), []

    def asked(index):
        status, headers, text = post(server, bodies[index])
        assert status == 200, text
        if index == 8:
            killed.append(int(headers["x-worker"]))
            os.kill(killed[0], signal.SIGKILL)
        workers.add(int(headers["x-worker"]))
        return json.loads(text)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(asked, range(len(bodies))))
    expected, decoded = texts_of(bundle, bodies), [each["choices"][0]["text"] for each in found]
    assert decoded == expected
    assert workers - set(killed)
    assert found[0]["usage"]["completion_tokens"] == 6
    assert found[0]["object"] == "text_completion"
    status, _, text = post(server, {**bodies[4], "stream": True})
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    parts = [json.loads(each)["choices"][0] for each in events]
    assert "".join(part["text"] for part in parts) == expected[4]
    assert [part["finish_reason"] for part in parts] == [None] * 5 + ["length"]
    both = json.loads(post(server, {**bodies[0], "prompt": PROMPTS[:2]})[2])
    assert [each["index"] for each in both["choices"]] == [0, 1]
    for bad, words in (
        ({"prompt": "x" * MAX_LENGTH}, f"expected at most {MAX_LENGTH}"),
        ({"prompt": "x", "n": 2}, "n is not 1"),
        ({"prompt": "x", "max_tokens": "many"}, "many"),
        ([], "no JSON object"),
    ):
        status, _, text = post(server, bad)
        assert (status, json.loads(text)["error"]["type"]) == (400, "invalid_request_error")
        assert words in text
    health = urllib.request.urlopen(f"http://127.0.0.1:{server}/health", timeout=60)
    assert json.load(health)["active"] == 0


def texts_of(bundle, bodies):
    """What the bundle says of each body, by itself."""
    tokens, texts = ByteTokens(), []
    with load(bundle) as program:
        batches = Batches(program)
        for body in bodies:
            request = Request(
                tokens.encode(body["prompt"]),
                body["max_tokens"],
                frozenset([tokens.end]),
                temperature=body["temperature"],
                top_p=body["top_p"],
                seed=body["seed"],
            )
            batches.add(request)
            while not batches.is_idle():
                batches.step()
            text = Text(tokens.decoder(), tokens.end)
            texts.append(text.more(request.tokens, is_last=True))
    return texts
