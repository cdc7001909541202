"""Tables, figures and pages rendered from result rows alone. Imports no JAX."""
