"""The exception of the package."""


class Error(ValueError):
    """A wrong argument, file or image. The text names the argument, the rule and the value."""

    __module__ = "qna"
