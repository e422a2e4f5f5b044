"""What the files of a bundle say, read strictly: manifest, plan, weights."""
