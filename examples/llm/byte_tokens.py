"""Text as tokens: bytes, or what a folder's `tokenizer.json` says by the library tokenizers."""

import codecs
from pathlib import Path

BEGIN, END = 256, 257  # after the 256 bytes
VOCABULARY = 258


class ByteTokens:
    """One token a byte. Needs no library and no file."""

    end = END

    def encode(self, text):
        return [BEGIN, *text.encode()]

    def decoder(self):
        """A function of tokens that gives the text which they complete."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda tokens: decoder.decode(bytes(each for each in tokens if each < BEGIN))


class LibraryTokens:
    """A folder's `tokenizer.json`, by the library tokenizers (`pip install tokenizers`)."""

    def __init__(self, path, end):
        import tokenizers

        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.end = end

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def decoder(self):
        """The text so far, less what was given: a token's text depends on the one before it."""
        tokens, given = [], ""

        def more(new):
            nonlocal given
            tokens.extend(new)
            text = self.tokenizer.decode(tokens)
            if text.endswith("\ufffd"):  # a character whose bytes are not all there
                return ""
            fresh, given = text[len(given) :], text
            return fresh

        return more


def tokens_of(folder):
    """The tokens of a model's folder; `folder` may be None, for bytes."""
    import json

    path = None if folder is None else Path(folder) / "tokenizer.json"
    if path is None or not path.is_file():
        return ByteTokens()
    end = json.loads(path.with_name("config.json").read_text()).get("eos_token_id")
    return LibraryTokens(path, end[0] if isinstance(end, list) else end)
