"""The text of one request as its tokens come, up to the first stop."""


class Text:
    """`more` takes new tokens and gives the text that is sure: what may yet become a stop waits."""

    def __init__(self, decode, end, stops=()):
        self.decode, self.end = decode, end
        self.stops = [each for each in stops if each]
        self.kept = ""
        self.is_stopped = False

    def more(self, tokens, is_last=False):
        if self.is_stopped:
            return ""
        self.kept += self.decode([each for each in tokens if each != self.end])
        found = [place for each in self.stops if (place := self.kept.find(each)) >= 0]
        if found:
            self.is_stopped = True
            given, self.kept = self.kept[: min(found)], ""
            return given
        held = 0 if is_last else self._held()
        split = len(self.kept) - held
        given, self.kept = self.kept[:split], self.kept[split:]
        return given

    def _held(self):
        """How many last characters a stop may begin with."""
        return max(
            (
                count
                for each in self.stops
                for count in range(1, min(len(each), len(self.kept) + 1))
                if self.kept.endswith(each[:count])
            ),
            default=0,
        )
