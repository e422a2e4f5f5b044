"""Reads markup strictly enough for tests: what is opened is closed, in its order."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """The elements, attributes and texts of a page; closing tags have to fit."""

    def __init__(self):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in ("meta", "br", "input", "col"):
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.texts.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader
