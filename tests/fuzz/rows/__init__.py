"""The table of ops that programs are drawn of, one file a family of them."""
