"""diff: what two bundles say, section by section, and where they say different things."""
