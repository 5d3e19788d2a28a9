"""Text that appears while a model writes it."""


class StreamedText:
    """A text on standard output that grows while the model writes it. Its line ends with the block, even if that is
    interrupted. True once there is any text."""

    def __init__(self) -> None:
        self._begun = False

    def __bool__(self) -> bool:
        return self._begun

    def add(self, part: str) -> None:
        self._begun = True
        print(part, end="", flush=True)

    def __enter__(self) -> None:
        return None

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._begun and error is not BrokenPipeError:
            print(flush=True)
