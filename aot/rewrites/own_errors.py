"""Errors of rewrites that users bring along."""

from __future__ import annotations

from aotc.aot.errors import UserError


class OwnRewriteRefused(UserError):
    """A rewrite of the user's made something that cannot stand in the place of what it took out."""

    code = "own-rewrite-refused"
    template = "rewrite `{rule}` ({source}) is refused: {reason}\nbefore:\n{before}after:\n{after}"
    hint = "give back what has the same type and reads the same values"


class OwnRewriteEndless(UserError):
    """A rewrite of the user's still fired after as many times as any end can take."""

    code = "own-rewrite-endless"
    template = (
        "rewrite `{rule}` ({source}) does not come to an end: it fired {count} times\n"
        "before:\n{before}after:\n{after}"
    )
    hint = "what it gives back matches it again: make its pattern or its `when` narrower"


class OwnRewriteInvalid(UserError):
    """`@aot.rewrite` was given what is no rewrite."""

    code = "own-rewrite-invalid"
    template = "rewrite `{rule}` ({source}): {reason}"
    hint = "see docs/rewrites.md for the three forms of a rewrite"


class OwnRewritesUnreadable(UserError):
    """The file that `--rewrites` names cannot be read as Python, or holds no rewrite."""

    code = "own-rewrites-unreadable"
    template = "rewrites `{path}`: {reason}"
    hint = "name a Python file in which functions carry `@aot.rewrite`"
