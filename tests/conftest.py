"""What all tests share: the daemon's own log lines go nowhere, so that a run reads quietly."""

import structlog
from structlog.typing import EventDict, WrappedLogger


def _drop(_logger: WrappedLogger, _method: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


structlog.configure(processors=[_drop], cache_logger_on_first_use=False)
