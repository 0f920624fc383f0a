"""What fails in a call without ending it: logged, redacted, and reported in the diagnostics of the call."""

from __future__ import annotations

import logging
from typing import Final

from elision.errors import CallbackError, CorruptError, words_of_error
from elision.manager.context_options import Options
from elision.stores.store_errors import name_check_command
from elision.telemetry.diagnostics import Fault, FaultKind

_log: Final = logging.getLogger("elision.manager")


class FaultReports:
    """The faults of the newest call, each once. session: the name under which they are logged."""

    def __init__(self, options: Options, session: str) -> None:
        self.options = options
        self.session = session
        self.faults: list[Fault] = []
        #: Of what happened before the next call.
        self.early_faults: list[Fault] = []

    def begin_call(self) -> None:
        """Forget the faults of the call before."""
        self.faults[:] = self.early_faults
        self.early_faults.clear()

    def add_fault(self, kind: FaultKind, error: Exception, then: str = "") -> None:
        """Report a failure that does not end the call. then: what was done. Raises it with `on_fault="raise"`."""
        if isinstance(error, CorruptError):
            cause = error
            error = CorruptError(name_check_command(str(cause)))
            error.__cause__ = cause
        if self.options.advanced.on_fault == "raise" and kind != "budget":
            raise error
        fault = self._make_fault(kind, error, then)
        if fault not in self.faults:
            self.faults.append(self._log_fault(fault))

    def log_fault(self, kind: FaultKind, error: Exception) -> Fault:
        """Log a failure that is in no call, and return it."""
        return self._log_fault(self._make_fault(kind, error))

    def _make_fault(self, kind: FaultKind, error: Exception, then: str = "") -> Fault:
        what = self.options.advanced.redaction.redact_text("; ".join(filter(None, (words_of_error(error), then))))
        cause: BaseException = error
        if isinstance(error, CallbackError) and error.__cause__:
            cause = error.__cause__
        return Fault(kind=kind, cause=type(cause).__name__, what=what[:500])

    def _log_fault(self, fault: Fault) -> Fault:
        _log.warning("session %s: %s: %s", self.session, fault.kind, fault.what)
        return fault
