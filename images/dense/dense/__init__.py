"""Dense retrieval: embeddings, an exact search over them, and their fusion with full text."""
