"""Specs written for the user: `aotc init`."""
