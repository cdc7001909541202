"""What attentions approximate and how well, on the queries, keys and values of trained models."""
