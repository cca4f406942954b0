"""A call in its place: what the facts of the model that are one call have in common."""

from __future__ import annotations

from dlcheck.facts import forms
from dlcheck.model.scopes import Link, Module, Site, last_name


class CallSite:
    """For classes that have the ``site`` of a call."""

    site: Site

    @property
    def module(self) -> Module:
        return self.site.module

    @property
    def link(self) -> Link:
        return self.site.link

    @property
    def call(self) -> forms.Call:
        assert isinstance(self.site.expr, forms.Call)
        return self.site.expr

    @property
    def name(self) -> str:
        """The last name of what is called."""
        return last_name(self.call.func)

    @property
    def name_at(self) -> int:
        """The node of that name."""
        return called_name_at(self.call)

    @property
    def text(self) -> str:
        """The call as it stands in the source, on one line."""
        return self.module.line(self.call.at)


def called_name_at(call: forms.Call) -> int:
    """The node of the last name of what is called."""
    return call.func.name_at if isinstance(call.func, forms.Attr) else call.func.at
