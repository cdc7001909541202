"""Tables and figures of costs, from rows of `lra.efficiency`."""
