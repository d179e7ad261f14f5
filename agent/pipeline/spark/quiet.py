"""Keeps what Java and Spark print about themselves away from the report's own lines."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """A Java that is started inside writes its standard error to a file without a name; it is shown if starting
    fails, because then it has the reason."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(own, 2)
            aside.seek(0)
            with os.fdopen(os.dup(own), "wb") as shown:
                shutil.copyfileobj(aside, shown)
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)
