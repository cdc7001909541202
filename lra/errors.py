"""The one exception for what a user can put right."""


class UserError(Exception):
    """Bad input, named with its cure in one line; a command prints it and exits with status 2."""


def of_system(error: OSError) -> str:
    """An error of the operating system in one line: what, and of which file."""
    return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
