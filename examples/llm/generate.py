"""Continues prompts by a bundle, with neither torch nor transformers in the process.

    python examples/llm/generate.py model.aotc "# How to" "A bundle is" --temperature 0.7

One prompt is printed as it comes; several, of any lengths, run side by side.
"""

import argparse
import sys

from batches import Batches, Request, RequestRefused
from byte_tokens import tokens_of
from texts import Text

from aotc import runtime


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="with a tokenizer.json; else bytes")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--stop", action="append", default=[], help="end where this text comes")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    return parser.parse_args()


def requests_of(given, tokens):
    ends = frozenset({tokens.end} - {None})
    return [
        Request(
            tokens.encode(prompt),
            given.max_tokens,
            ends,
            given.temperature,
            given.top_k,
            given.top_p,
            given.repetition_penalty,
            given.seed,
        )
        for prompt in given.prompts
    ]


def main():
    given = arguments()
    tokens = tokens_of(given.tokenizer)
    requests = requests_of(given, tokens)
    texts = {id(each): Text(tokens.decoder(), tokens.end, given.stop) for each in requests}
    said = {id(each): "" for each in requests}
    is_streamed = len(requests) == 1
    with runtime.load(given.bundle) as program:
        batches = Batches(program)
        try:
            for request in requests:
                batches.add(request)
        except RequestRefused as error:
            sys.exit(str(error))
        if is_streamed:
            print(given.prompts[0], end="", flush=True)
        while not batches.is_idle():
            for request in batches.step():
                text = texts[id(request)]
                new = text.more(request.tokens[-1:], is_last=request.finish is not None)
                said[id(request)] += new
                if text.is_stopped and request.finish is None:
                    batches.cancel(request, "stop")
                if is_streamed:
                    print(new, end="", flush=True)
    if is_streamed:
        print()
    else:
        for prompt, request in zip(given.prompts, requests, strict=True):
            print(f"--- {len(request.tokens)} tokens, {request.finish}")
            print(prompt + said[id(request)])


if __name__ == "__main__":
    main()
