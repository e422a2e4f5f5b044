"""A small language model of bytes, trained for about a minute on the repository's own pages.

    python examples/llm/train.py MODEL_FOLDER

Writes `config.json` and `model.safetensors`, as any model of transformers has them.
"""

import argparse
import time
from pathlib import Path

import torch
import transformers
from byte_tokens import BEGIN, END, VOCABULARY, ByteTokens

ROOT = Path(__file__).parents[2]
LENGTH = 128
BATCH = 16


def pages():
    """i64[bytes]: each page between a begin and an end."""
    paths = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    tokens = ByteTokens()
    every = [torch.tensor([*tokens.encode(path.read_text()), END]) for path in paths]
    return torch.cat(every)


def make(width=128, layers=3):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=BEGIN,
            eos_token_id=END,
            pad_token_id=END,
        )
    )


def train(model, seconds):
    """Steps of AdamW until the time is over; the mean loss of the last ones, in nats a byte."""
    text = pages()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    started, losses = time.monotonic(), []
    while (share := (time.monotonic() - started) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - share) + 1e-5
        begins = torch.randint(0, len(text) - LENGTH, (BATCH,))
        ids = torch.stack([text[begin : begin + LENGTH] for begin in begins.tolist()])
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    recent = losses[-50:]
    return len(losses), sum(recent) / len(recent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    model = make()
    steps, loss = train(model, given.seconds)
    model.save_pretrained(given.folder)
    count = sum(each.numel() for each in model.parameters())
    print(f"{given.folder}: {count} parameters, {steps} steps, {loss:.2f} nats a byte")


if __name__ == "__main__":
    main()
