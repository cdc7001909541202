"""The one exception for what a user can put right."""


class UserError(Exception):
    """Bad input, named with its cure in one line; a command prints it and exits with status 2."""
