"""Rewrites: tables of equations over the graph, one file a subject."""
