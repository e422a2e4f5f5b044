"""Trust in a bundle: signatures by trusted keys, and a list of revoked digests."""
