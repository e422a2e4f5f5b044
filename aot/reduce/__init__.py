"""From a model that does not build, or builds and differs, to its smallest part that still does."""
