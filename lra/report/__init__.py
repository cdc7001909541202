"""Tables, figures and pages from rows, and from rows alone. Imports no JAX."""
