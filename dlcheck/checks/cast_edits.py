"""The fix for a batch that is cast before it is copied to the GPU: the copy moves in front of the cast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.checks import mending
from dlcheck.checks.class_edits import with_parents
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.scopes import Link, Module, dotted, expressions, last_name
from dlcheck.model.training.copying import Move
from dlcheck.model.training.hostdata import Cast

# Steps that do the same on the GPU, given numbers.
_STEPS = frozenset(
    {"float", "to", "type", "div", "div_", "true_divide", "mul", "mul_", "sub", "sub_", "add", "add_", "unsqueeze",
     "squeeze", "view", "reshape", "permute", "transpose", "contiguous", "flatten", "clamp", "clamp_", "flip", "clone",
     "detach", "requires_grad_", "expand", "repeat"}
)  # fmt: skip
_HOST_TYPES = frozenset({"FloatTensor", "DoubleTensor", "HalfTensor"})


def copied_first(move: Move, cast: Cast) -> Fix | Refused:
    """The copy where the cast was, in front of it."""
    call = next((site.expr for site in move.module.calls if site.expr.at == cast.at), None)
    if not isinstance(call, forms.Call) or not isinstance(call.func, forms.Attr):
        return Refused("it is not known what is cast")
    plan = _Plan(move, cast, call)
    reason = plan.obstacle()
    return Refused(reason) if reason else make_fix("unsafe", "Copy it first", [*plan.edits()])


@dataclass
class _Plan:
    move: Move
    cast: Cast
    call: forms.Call  # which casts

    def __post_init__(self) -> None:
        self.module = self.move.module
        self.source, self.facts = self.module.source, self.module.facts

    @property
    def chain(self) -> list[Link]:
        """The statements from the cast on that work on the batch, that of the copy left out."""
        links = (self.cast.link, *(step.link for step in self.cast.after))
        return [link for link in dict.fromkeys(links) if link is not self.move.link]

    # -- what stands in the way

    def obstacle(self) -> str:
        args = self.move.call.args
        if any(arg.star or arg.name not in (None, "device", "non_blocking") for arg in args) or (
            sum(arg.name is None for arg in args) > 1 and not isinstance(args[1].value, forms.Const)
        ):
            return "the copy does more than copy"
        for step in self.cast.after:
            given = step.expr.args if isinstance(step.expr, forms.Call) else ()
            if isinstance(step.expr, forms.Call) and step.name not in _STEPS:
                return f"`.{step.name}()` may need the host"
            if not all(_is_number(arg.value) for arg in given):
                return f"`{self.module.line(step.expr.at)}` may take tensors that stay on the host"
        if any("#" in self.source.text[slice(*self.facts.span(expr.at))] for expr in (self.call, self.move.call)):
            return "a comment stands in the way"
        return self._used() if self.chain else ""

    def _used(self) -> str:
        """Whether anything else sees what the cast gives before it is copied, or as it would be on the host."""
        names = {name for link in self.chain for name in link.changes}
        if any("." in name for name in names):
            return "the batch is kept in an attribute meanwhile"
        block = self.move.link.block
        if any(link.block is not block for link in self.chain):
            return "the cast is made in another block"
        between = block[self.cast.link.index : self.move.link.index + 1]
        inside = [*between, *(inner for link in between for inner in links_in(link))]
        stays = names - ({self._renewed()} if self._renewed() else set())
        for link in links_of(self.move.link.scope):
            if link in self.chain:
                continue
            wanted = names if link in inside else {name for name in stays if not self._is_another(link, name)}
            if any(self._mentions(link, wanted)):
                if link is self.move.link:
                    return "the copy shares its statement with other things"
                return f"`{self.module.line(link.head).partition(':')[0]}` sees it on the host"
        return ""

    def _is_another(self, link: Link, name: str) -> bool:
        """Whether a name is set anew in the loop around a statement, which is not that of the copy."""
        shared = set(map(id, self.move.link.outer()))
        return any(
            isinstance(outer.stmt, (forms.For, forms.While)) and id(outer) not in shared and name in outer.changes
            for outer in link.outer()
        )

    def _mentions(self, link: Link, names: set[str]) -> Iterator[forms.Name]:
        for root in expressions(link.stmt):
            for expr, around in with_parents(root, ()):
                if (
                    not isinstance(expr, forms.Name)
                    or expr.id not in names
                    or link is self.move.link
                    and (any(one is self.move.call for one in around))
                ):
                    continue
                if isinstance(link.stmt, forms.For) and root is link.stmt.target:
                    continue  # the batch, as the loader gives it
                if isinstance(link.stmt, forms.Assign) and any(expr is target for target in link.stmt.targets):
                    continue
                parent = around[0] if around else None
                if isinstance(parent, forms.Attr) and parent.name in ("shape", "ndim"):
                    continue
                if len(around) > 1 and isinstance(parent, forms.Attr) and parent.name in ("size", "dim"):
                    continue
                yield expr

    def _renewed(self) -> str:
        """The name, where the statement of the copy does nothing but give it the copy: ``x = x.cuda()``."""
        stmt = self.move.link.stmt
        if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and stmt.value is self.move.call:
            name = dotted(stmt.targets[0])
            last = self.chain[-1].changes if self.chain else ()
            return name if name is not None and dotted(self.move.receiver) == name and name in last else ""
        return ""

    # -- edits

    def edits(self) -> Iterator[Edit | Refused]:
        text = self.source.text
        assert isinstance(self.call.func, forms.Attr)
        assert isinstance(self.move.call.func, forms.Attr)
        start, end = _suffix(self.module, self.move.call)
        at, stop = _suffix(self.module, self.call)
        yield Edit(self.source.place(at, at), self._copy(text[start:end]))
        if any(last_name(arg.value) in _HOST_TYPES for arg in self.call.args):
            yield Edit(self.source.place(at, stop), ".float()")
        if self._renewed():
            yield mending.remove_statement(self.source, self.facts, self.move.link)
            return
        first, last = self.facts.span(self.move.receiver.at)
        stmt = self.move.link.stmt
        # Brackets around what is copied are no longer needed where they hold a whole value.
        bare = isinstance(stmt, forms.Assign) and stmt.value is self.move.call
        item = text[: first - 1].rstrip()[-1:] in ("(", ",", "=", "[") and text[end:].lstrip()[:1] in (")", ",", "]")
        if (bare or item) and text[first - 1 : first] == "(" and text[last : last + 1] == ")" and last + 1 == start:
            yield Edit(self.source.place(first - 1, first), "")
            start = last
        yield Edit(self.source.place(start, end), "")

    def _copy(self, text: str) -> str:
        """The copy, which need not wait for a batch that is pinned."""
        args = self.move.call.args
        pinned = all(loader.pinning(True) and not loader.pinning(False) for loader in self.cast.loaders)
        cuda = {kind for kind, _ in self.move.kinds} <= {"cuda", "cpu"}
        if (
            not pinned
            or not cuda
            or self.cast.before
            or len(args) > 1
            or any(arg.name == "non_blocking" for arg in args)
        ):
            return text
        inner = text[:-1].rstrip().rstrip(",")
        return f"{inner}{', ' if args else ''}non_blocking=True)"


def _suffix(module: Module, call: forms.Call) -> tuple[int, int]:
    """The range of ``.cuda()`` behind what it is called on."""
    assert isinstance(call.func, forms.Attr)
    text = module.source.text
    dot = text.rindex(".", 0, module.facts.span(call.func.name_at)[0])
    return len(text[:dot].rstrip()), module.facts.span(call.at)[1]


def _is_number(expr: forms.Expr) -> bool:
    if isinstance(expr, (forms.Unary, forms.Const)):
        return True
    return (dotted(expr) or "").startswith("torch.") or last_name(expr) in ("shape", "float32", *_HOST_TYPES)
