"""What the files of a bundle say of it, read as data: nothing of a bundle is run."""
