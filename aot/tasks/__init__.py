"""tasks: what runs outside of this process, and where: worker processes, a Ray cluster, files."""
