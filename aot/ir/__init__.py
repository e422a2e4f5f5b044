"""The tensor graph: types, nodes, operations, text form, legality and a numpy reference."""
