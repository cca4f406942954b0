"""Weighted samplers: do the weights belong to the classes, although the sampler wants one for each sample?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.call_sites import CallSite
from dlcheck.model.definitions import constant, definition, resolved
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Site, descend, dotted, last_name
from dlcheck.model.values import External, Func, Made

if TYPE_CHECKING:
    from dlcheck.model.project import Project

SAMPLER = "torch.utils.data.WeightedRandomSampler"
FEW = 100  # a longer list of literals may well be one weight for each sample

# One number for each class.
_PER_CLASS = frozenset(
    {
        "numpy.bincount", "torch.bincount", "sklearn.utils.class_weight.compute_class_weight",
        "sklearn.utils.compute_class_weight", "numpy.unique[]", "torch.unique[]", "torch.histc",
    }
)  # fmt: skip
# Functions that give as many numbers as their first argument has.
_ELEMENTWISE = frozenset(
    {
        "torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.Tensor", "torch.FloatTensor",
        "torch.DoubleTensor", "torch.sqrt", "torch.log", "torch.exp", "torch.reciprocal", "torch.pow",
        "torch.nn.functional.normalize", "torch.clamp", "torch.softmax", "numpy.array", "numpy.asarray", "numpy.sqrt",
        "numpy.log", "numpy.exp", "numpy.power", "numpy.reciprocal", "numpy.divide", "builtins.list",
        "builtins.tuple", "numpy.float32", "numpy.clip", "numpy.maximum",
    }
)  # fmt: skip
_ELEMENTWISE_METHODS = frozenset(
    {"float", "double", "half", "to", "cpu", "cuda", "numpy", "tolist", "astype", "pow", "sqrt", "log", "exp", "clip",
     "clamp", "reciprocal", "detach", "type", "sort_index", "div", "mul", "to_numpy", "flatten", "squeeze", "view",
     "reshape", "clone", "copy", "values", "to_list", "clamp_min", "max_values"}
)  # fmt: skip
_COUNTS_OF_CLASSES = ("class_count", "class_sample_count", "class_freq", "label_count", "cls_count", "num_per_class",
                      "samples_per_class", "counts_per_class", "class_hist")  # fmt: skip


@dataclass(frozen=True, eq=False)
class WeightedSampling(CallSite):
    """A call of ``WeightedRandomSampler(weights, num_samples)``."""

    project: Project
    site: Site

    def _argument(self, name: str, number: int) -> forms.Expr | None:
        args = calling.arguments(self.call, self.project.point(self.site))
        thunk = calling.argument(args, name, number)
        return thunk.expr if thunk is not None else None

    @property
    def weights(self) -> forms.Expr | None:
        return self._argument("weights", 0)

    @property
    def origin(self) -> list[int]:
        """The expression that the weights are, where they are only a name in the call."""
        found = definition(self.project, self.weights, self.link) if self.weights is not None else None
        return [found.expr.at] if found is not None and found.link.scope.module is self.module else []

    def weighs_classes(self) -> bool:
        """Whether there is one weight for each class, and samples are drawn as if there were one for each sample."""
        weights, number = self.weights, self._argument("num_samples", 1)
        if weights is None or number is None:
            return False
        found = resolved(self.project, weights, self.link)
        if _is_literal(self.project, found.expr, found.link):
            return self._counts_samples(number, weights)
        if not per_class(self.project, weights, self.link):
            return False
        return self._counts_samples(number, weights) or self._draws_many(number)

    def _counts_samples(self, number: forms.Expr, weights: forms.Expr) -> bool:
        """Whether as many are drawn as something has samples that is neither the weights nor the classes."""
        here = resolved(self.project, number, self.link)
        counted = list(_counted(here.expr))
        return bool(counted) and not any(
            self._is_of_classes(expr, here.link) or dotted(expr) == dotted(weights) for expr in counted
        )

    def _is_of_classes(self, expr: forms.Expr, link: Link) -> bool:
        name = last_name(expr).lower()
        if "class" in name and "data" not in name or "weight" in name or name in ("counts", "categories"):
            return True
        found = resolved(self.project, expr, link)
        return per_class(self.project, expr, link) or _is_literal(self.project, found.expr, found.link)

    def _draws_many(self, number: forms.Expr) -> bool:
        value = constant(self.project, number, self.link)
        if isinstance(value, int):
            return value >= FEW
        here = resolved(self.project, number, self.link)
        # sum(counts): all samples
        return any(isinstance(part, forms.Call) and last_name(part.func) == "sum" for part in descend(here.expr))


def weighted_samplings(project: Project) -> Iterator[WeightedSampling]:
    """The calls of ``WeightedRandomSampler`` in the modules that findings are for."""
    names = {"WeightedRandomSampler"} | project.aliases("WeightedRandomSampler")
    for module in project.named_modules:
        for site in module.calls_to(*sorted(names)):
            call = site.expr
            if isinstance(call, forms.Call):
                values = project.evaluator.values(call.func, project.point(site))
                if any(isinstance(value, External) and value.path == SAMPLER for value in values):
                    yield WeightedSampling(project, site)


def _counted(expr: forms.Expr) -> Iterator[forms.Expr]:
    """``x`` of ``len(x)``, ``x.shape[0]`` and ``x.size(0)`` in an expression."""
    for part in descend(expr):
        if isinstance(part, forms.Call) and dotted(part.func) == "len" and len(part.args) == 1:
            yield part.args[0].value
        elif isinstance(part, forms.Sub) and isinstance(part.value, forms.Attr) and part.value.name == "shape":
            yield part.value.value
        elif isinstance(part, forms.Call) and isinstance(part.func, forms.Attr) and part.func.name in ("size", "numel"):
            yield part.func.value


def _is_literal(project: Project, expr: forms.Expr, link: Link) -> bool:
    """A short list of numbers, also as a tensor."""
    if isinstance(expr, forms.Call) and _path(project, expr, link) in _ELEMENTWISE and expr.args:
        found = resolved(project, expr.args[0].value, link)
        return _is_literal(project, found.expr, found.link)
    if isinstance(expr, forms.Sequence) and 2 <= len(expr.items) < FEW:
        return not any(isinstance(item, (forms.Star, forms.Sequence)) for item in expr.items)
    return False


def per_class(project: Project, expr: forms.Expr, link: Link, depth: int = 0) -> bool:
    """Whether an expression is proven to hold one number for each class."""
    if depth > 12:
        return False
    if isinstance(expr, (forms.Name, forms.Attr)) and dotted(expr) is not None:
        found = definition(project, expr, link)
        if found is not None:
            return per_class(project, found.expr, found.link, depth + 1)
        return (
            _is_made_per_class(project, expr, link)
            or _is_histogram(project, expr, link)
            or _is_unset_count(project, expr, link)
        )
    if isinstance(expr, forms.Attr):
        return expr.name in ("values", "T", "data") and per_class(project, expr.value, link, depth + 1)
    if isinstance(expr, forms.Call):
        return _call_per_class(project, expr, link, depth)
    if isinstance(expr, forms.Binary):
        sides = (expr.left, expr.right)
        return any(per_class(project, side, link, depth + 1) for side in sides)
    if isinstance(expr, forms.Unary):
        return per_class(project, expr.value, link, depth + 1)
    if isinstance(expr, forms.Comp):
        return len(expr.clauses) == 1 and not expr.clauses[0].ifs and _goes_over_classes(project, expr, link, depth)
    if isinstance(expr, forms.Sub):
        return _is_made_per_class(project, expr, link)
    return False


def _is_made_per_class(project: Project, expr: forms.Expr, link: Link) -> bool:
    values = list(project.evaluator.values(expr, project.point(Site(expr, link, None))))
    return bool(values) and all(isinstance(value, Made) and _counts(value) for value in values)


def _counts(made: Made) -> bool:
    """Whether a library made one number for each class; not the inverse that ``unique`` can give, too."""
    options = {name for name, _ in made.args.keywords} if made.args is not None else set()
    return made.path in _PER_CLASS and not options & {"return_inverse", "return_index", "dim", "axis"}


def _is_histogram(project: Project, expr: forms.Expr, link: Link) -> bool:
    """Zeros, one for each class, to which ``counts[label] += 1`` adds."""
    name = dotted(expr)
    changing = [other for other in links_of(link.scope) if name in other.changes and not other.blocks]
    made = [other.stmt for other in changing if isinstance(other.stmt, forms.Assign)]
    added = [other.stmt for other in changing if isinstance(other.stmt, forms.AugAssign)]
    if len(made) != 1 or not added or len(made) + len(added) != len(changing) or dotted(made[0].targets[0]) != name:
        return False
    if not all(isinstance(stmt.target, forms.Sub) for stmt in added):
        return False
    number = _number_of_zeros(made[0].value)
    if number is None:
        return False
    value = constant(project, number, link)
    return isinstance(value, int) and value < FEW or _names_classes(number)


def _number_of_zeros(expr: forms.Expr) -> forms.Expr | None:
    """``n`` of ``zeros(n)`` and of ``[0] * n``."""
    if isinstance(expr, forms.Call) and last_name(expr.func) == "zeros" and expr.args:
        return expr.args[0].value
    if isinstance(expr, forms.Binary) and expr.op == "*" and isinstance(expr.left, forms.Sequence):
        return expr.right
    if isinstance(expr, forms.Comp) and len(expr.clauses) == 1 and isinstance(expr.value, forms.Const):
        iterated = expr.clauses[0].iter
        is_range = isinstance(iterated, forms.Call) and last_name(iterated.func) == "range"
        return iterated.args[0].value if is_range and isinstance(iterated, forms.Call) and iterated.args else None
    return None


def _names_classes(expr: forms.Expr) -> bool:
    """``num_classes``, ``len(dataset.classes)``."""
    if isinstance(expr, forms.Call) and last_name(expr.func) == "len" and expr.args:
        expr = expr.args[0].value
    name = last_name(expr).lower()
    return "classes" in name or name in ("n_cls", "num_cls", "n_class", "num_class", "nclasses", "num_labels")


def _is_unset_count(project: Project, expr: forms.Expr, link: Link) -> bool:
    """A parameter or attribute that nobody sets, named as the numbers of samples in each class are."""
    name = last_name(expr).lower()
    if not any(word in name for word in _COUNTS_OF_CLASSES):
        return False
    return not any(dotted(expr) in other.changes for other in links_of(link.scope))


def _path(project: Project, call: forms.Call, link: Link) -> str:
    values = project.evaluator.values(call.func, project.point(Site(call, link, None)))
    return next((value.path for value in values if isinstance(value, External)), "")


def _call_per_class(project: Project, call: forms.Call, link: Link, depth: int) -> bool:
    path = _path(project, call, link)
    if path in _PER_CLASS or path.endswith(".value_counts"):
        return True
    if not path and _returns_per_class(project, call, link, depth):
        return True
    first = call.args[0].value if call.args and not call.args[0].star else None
    if path in _ELEMENTWISE:
        return first is not None and per_class(project, first, link, depth + 1)
    if isinstance(call.func, forms.Attr):
        if call.func.name == "value_counts":
            return True
        if call.func.name == "values" and _is_counter(project, call.func.value, link):
            return True
        return call.func.name in _ELEMENTWISE_METHODS and per_class(project, call.func.value, link, depth + 1)
    return False


def _returns_per_class(project: Project, call: forms.Call, link: Link, depth: int) -> bool:
    """Whether all that a function of the project returns holds one number for each class."""
    values = list(project.evaluator.values(call.func, project.point(Site(call, link, None))))
    func = values[0] if len(values) == 1 else None
    if not isinstance(func, Func) or func.scope.function.is_generator:
        return False
    returned = [other.stmt.value for other in func.scope.returns if isinstance(other.stmt, forms.Return)]
    return bool(returned) and all(
        value is not None and per_class(project, value, other, depth + 2)
        for value, other in zip(returned, func.scope.returns, strict=True)
    )


def _is_counter(project: Project, expr: forms.Expr, link: Link) -> bool:
    found = resolved(project, expr, link)
    return isinstance(found.expr, forms.Call) and _path(project, found.expr, found.link) == "collections.Counter"


def _goes_over_classes(project: Project, comp: forms.Comp, link: Link, depth: int) -> bool:
    """``[... for c in np.unique(labels)]``, ``for c in range(num_classes)``, ``for n in class_counts``."""
    iterated = comp.clauses[0].iter
    here = resolved(project, iterated, link)
    expr = here.expr
    if isinstance(expr, forms.Call):
        name = last_name(expr.func)
        if name in ("items", "keys", "values", "most_common") and isinstance(expr.func, forms.Attr):
            return _is_counter(project, expr.func.value, here.link)
        if name == "range" and len(expr.args) == 1:
            count = expr.args[0].value
            value = constant(project, count, here.link)
            return isinstance(value, int) and value < FEW or _names_classes(count)
        if name in ("unique", "set", "sorted") and expr.args:
            return name != "sorted" or isinstance(expr.args[0].value, forms.Call)
        if name == "enumerate" and expr.args:
            return per_class(project, expr.args[0].value, here.link, depth + 1)
    if dotted(expr) is not None and last_name(expr).lower() in ("classes", "class_names", "categories"):
        return True
    return per_class(project, iterated, link, depth + 1)
