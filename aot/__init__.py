"""The ahead-of-time compiler: a PyTorch model in, a bundle out."""
