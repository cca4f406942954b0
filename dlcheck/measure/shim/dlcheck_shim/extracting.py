"""The program stops being one: at the first iteration of its loader it answers the parent's questions instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .link import Answers
from .loaders import described

if TYPE_CHECKING:
    from .loaders import Watched


class Source:
    """Loaders like the one that the program has just built, over its own dataset."""

    evidence = "extract"

    def __init__(self, watched: Watched, loader: Any) -> None:
        self._watched = watched
        self._loader = loader
        self.dataset = loader.dataset
        import time

        self.set_up_s = time.perf_counter() - watched.session.started

    def loader(self, options: Mapping[str, Any], dataset: Any = None) -> Any:
        if dataset is not None:
            raise ValueError("a program's own loader is measured over its own dataset")
        return self._watched.build(self._loader, options)

    def options(self) -> dict[str, Any]:
        return described(self._loader)


def become_worker(watched: Watched, loader: Any) -> None:
    session = watched.session
    if session.link.quiet:
        while session.link.receive() is not None:  # another rank: it may only not be in the way
            pass
        session.leave("the measurement is over")
    from . import worker

    with session.beside():
        try:
            worker.serve(Answers(session.link), Source(watched, loader), session.started)
        except BaseException as error:  # noqa: BLE001 -- not even an exit of the dataset's may lead back into the program
            session.failed("serve", error)
            session.leave("the measurement failed", 1)
    sys.stdout.flush()
    session.leave("extracted")
