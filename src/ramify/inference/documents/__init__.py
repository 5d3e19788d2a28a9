"""Nested documents: vectors of nodes, decoding, coherence, search, and their measures."""
