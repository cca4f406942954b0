"""Whose memory a value is: an array's own, a view of another's, part of what an object keeps.

A ``Piece`` is what is known of one value on one path through a function.  ``dlcheck.model.data.paths``
makes them; here stands what the functions and methods of numpy, torch and Python do to memory.
"""

from __future__ import annotations

from typing import NamedTuple

from dlcheck.model import library
from dlcheck.model.scopes import Module, Scope

ARRAY, TENSOR, LIST, DICT, TUPLE = "array", "tensor", "list", "dict", "tuple"
NONE, SCALAR, PLAIN, LOADED = "none", "scalar", "plain", "loaded"
# PLAIN: lists and dicts as json gives them, or scalars.  LOADED: the same, or arrays, as pickle gives them.
CONTAINERS = frozenset({LIST, DICT, PLAIN, LOADED})
NUMERIC = frozenset({ARRAY, TENSOR})


MAX_HELD = 400  # pieces inside one


class Piece(NamedTuple):
    """A value on a path.

    ``stored`` is the class and attribute of the object that keeps the memory, with ``whole`` where
    the value is all of it.  ``solid``: certainly no scalar.  ``turned``: where a view was reversed.
    ``drawn``: depends on a random number.  ``fresh``: made on this path, by a call or an operator.
    """

    kind: str = ""
    stored: tuple[Scope, str] | None = None
    whole: bool = False
    solid: bool = False
    flat: bool = False  # one dimension: its items are scalars
    turned: tuple[Module, int] | None = None
    drawn: bool = False
    fresh: bool = False
    decoded: str = ""  # the function that read it from a file
    chosen: bool = False  # which part of the stored thing it is depends on the sample
    sources: frozenset[str] = frozenset()  # the parts of stored things that it was computed from; "*" for all
    parts: tuple[tuple[object, Piece], ...] = ()
    element: Piece | None = None  # of a list or dict with like items

    def part(self, key: object) -> Piece | None:
        return next((piece for name, piece in reversed(self.parts) if name == key), None)

    def bounded(self) -> Piece:
        """The value, without its contents where they are too many: one that holds another twice doubles each time."""
        todo, seen = [self], 0
        while todo:
            piece = todo.pop()
            seen += 1
            if seen > MAX_HELD:
                return self._replace(parts=(), element=None)
            todo += [part for _, part in piece.parts]
            if piece.element is not None:
                todo.append(piece.element)
        return self

    def within(self) -> list[Piece]:
        """The value and all that it holds."""
        found = [self]
        for _, piece in self.parts:
            found += piece.within()
        if self.element is not None and self.kind in (LIST, TUPLE):
            found += self.element.within()
        return found


UNKNOWN_PIECE = Piece()
NOTHING = Piece(NONE)
NUMBER = Piece(SCALAR)


# -- methods

# Views in numpy and torch alike; those of the second line may copy, and then keep nothing.
VIEW_METHODS = frozenset(
    {"view", "squeeze", "unsqueeze", "transpose", "permute", "swapaxes", "swapdims", "t", "detach", "narrow",
     "expand", "expand_as", "select", "unfold", "diagonal", "movedim", "moveaxis", "requires_grad_", "view_as",
     "numpy"}
)  # fmt: skip
UNSURE_METHODS = frozenset(
    {"reshape", "ravel", "flatten", "contiguous", "to", "float", "double", "long", "int", "half", "bool", "type",
     "cpu", "cuda", "type_as", "chunk", "split", "unbind", "data"}
)  # fmt: skip
VIEW_ATTRIBUTES = frozenset(
    {"T", "mT", "data", "real"}
)  # fmt: skip
# Only a tensor is converted like this.
TENSOR_METHODS = frozenset({"float", "double", "half", "long", "bfloat16"})
ARRAY_METHODS = frozenset(
    {"astype", "numpy"}
)  # fmt: skip
COPIES = frozenset(
    {"copy", "clone", "__copy__", "deepcopy"}
)  # fmt: skip

# Methods of Python's containers and of numpy that change the object itself.
LIST_EDITS = frozenset(
    {"append", "extend", "insert", "remove", "reverse", "sort", "clear", "pop"}
)  # fmt: skip
DICT_EDITS = frozenset(
    {"update", "pop", "popitem", "setdefault", "clear"}
)  # fmt: skip
ARRAY_EDITS = frozenset(
    {"fill", "sort", "partition", "itemset", "put", "byteswap"}
)  # fmt: skip
# Those whose outcome is the same however often they run.
SETTLED_EDITS = frozenset(
    {"fill", "fill_", "zero_", "clamp_", "clip_", "copy_", "sort", "partition", "abs_", "relu_", "setdefault",
     "clear", "masked_fill_", "index_fill_", "requires_grad_", "set_", "resize_", "share_memory_", "retain_grad",
     "rename_", "eval_", "round_", "floor_", "ceil_", "trunc_", "nan_to_num_", "sign_", "tril_", "triu_", "squeeze_",
     "unsqueeze_", "fill_diagonal_"}
)  # fmt: skip
RANDOM_EDITS = frozenset(
    {"random_", "normal_", "uniform_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"}
)  # fmt: skip

# A name used like this is no scalar.
SOLID_METHODS = frozenset(
    {"mean", "std", "min", "max", "sum", "shape", "reshape", "transpose", "astype", "copy", "flatten", "permute",
     "swapaxes", "squeeze", "ndim", "size", "T", "var"}
)  # fmt: skip
SOLID_USERS = frozenset(
    {"from_numpy", "fromarray", "ascontiguousarray", "flip", "fliplr", "flipud", "rot90", "resize", "transpose",
     "len", "stack", "concatenate", "cvtColor"}
)  # fmt: skip


def is_tensor_edit(name: str) -> bool:
    """``add_``, ``clamp_``: torch's mark of a method that changes its tensor."""
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__") and name != "requires_grad_"


# -- functions

_NUMPY_VIEWS = frozenset(
    {"transpose", "squeeze", "expand_dims", "swapaxes", "moveaxis", "rollaxis", "atleast_1d", "atleast_2d",
     "atleast_3d", "asarray", "asanyarray", "broadcast_to", "split", "array_split"}
)  # fmt: skip
TURNING = frozenset(
    {"numpy.flip", "numpy.fliplr", "numpy.flipud", "numpy.rot90"}
)  # fmt: skip
_FLAT_MAKERS = frozenset(
    {"numpy.arange", "numpy.random.permutation", "torch.arange", "torch.randperm", "numpy.linspace"}
)  # fmt: skip
_SHAPED = frozenset(
    {"zeros", "ones", "empty", "full"}
)  # fmt: skip
_STACKS = frozenset(
    {"stack", "vstack", "dstack", "column_stack", "meshgrid", "eye", "identity", "tile"}
)  # fmt: skip
_NUMPY_MAKERS = _SHAPED | _STACKS | frozenset(
    {"array", "concatenate", "hstack", "load", "loadtxt", "genfromtxt", "fromfile", "frombuffer", "zeros_like",
     "ones_like", "empty_like", "full_like", "ascontiguousarray", "clip", "pad", "where", "roll", "repeat",
     "random.randn", "random.rand", "random.normal", "random.uniform", "random.randint", "random.random",
     "random.standard_normal",
     "reshape", "resize", "delete", "insert", "append", "float32", "argsort", "sort", "cumsum", "diff", "abs", "sqrt",
     "exp", "log", "log1p", "power", "square", "sin", "cos", "maximum", "minimum", "add", "subtract", "multiply",
     "divide", "floor", "ceil", "sign", "tanh", "interp", "convolve", "nan_to_num", "take", "tril", "triu", "outer",
     "logspace", "histogram2d", "digitize", "select", "piecewise", "fft.fft", "fft.rfft", "fft.ifft"}
)  # fmt: skip
_IMAGES = frozenset(
    {"cv2.imread", "cv2.resize", "cv2.cvtColor", "cv2.imdecode", "cv2.GaussianBlur", "cv2.warpAffine",
     "cv2.copyMakeBorder", "skimage.io.imread", "skimage.transform.resize", "imageio.imread", "imageio.v2.imread",
     "imageio.v3.imread", "tifffile.imread", "matplotlib.image.imread", "matplotlib.pyplot.imread"}
)  # fmt: skip
# Give None where they cannot read, and raise nothing.
MAY_GIVE_NONE = frozenset({"cv2.imread", "cv2.imdecode"})
_LOADERS = {"json.load": PLAIN, "json.loads": PLAIN, "yaml.safe_load": PLAIN, "yaml.load": PLAIN,
            "pickle.load": LOADED, "pickle.loads": LOADED, "joblib.load": LOADED, "dill.load": LOADED,
            "torch.load": LOADED}  # fmt: skip
# The memory of a tensor or array, in the other library's clothes.
SHARING = frozenset(
    {"torch.from_numpy", "torch.as_tensor", "torch.asarray", "torch.autograd.Variable"}
)  # fmt: skip
# What refuses an array whose view goes backwards; the last line takes arrays among others.
REFUSING = frozenset(
    {"torch.from_numpy", "torch.as_tensor", "torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor",
     "torchvision.transforms.functional.to_tensor", "torchvision.transforms.v2.functional.to_image"}
)  # fmt: skip
REFUSING_TRANSFORMS = frozenset(
    {"torchvision.transforms.ToTensor", "torchvision.transforms.v2.ToTensor", "torchvision.transforms.v2.ToImage"}
)  # fmt: skip

_TORCH_VIEWS = frozenset(
    {"squeeze", "unsqueeze", "transpose", "permute", "narrow", "select", "t", "movedim", "swapaxes"}
)  # fmt: skip
_TORCH_NO_TENSORS = (
    "torch.utils.", "torch.cuda.", "torch.nn.", "torch.distributed.", "torch.optim.", "torch.backends.",
    "torch.multiprocessing.", "torch.jit.",
)  # fmt: skip

# Methods and functions that give all that an image, a recording or an array holds in another form.
_FORMS = frozenset(
    {"convert", "resize", "float", "half", "double", "long", "astype", "to", "permute", "transpose", "contiguous",
     "unsqueeze", "squeeze", "numpy", "array", "asarray", "ascontiguousarray", "from_numpy", "tensor", "as_tensor",
     "FloatTensor", "Tensor", "cvtColor", "to_tensor", "pil_to_tensor", "pad", "div", "clip", "moveaxis", "fromarray",
     "copy", "clone", "normalize", "ToTensor", "PILToTensor", "Normalize", "Resize", "read"}
)  # fmt: skip
CONVERTED = "converted"


def still_decoded(name: str, piece: Piece) -> str:
    """What a decoded file is after a function or a method of this name: nothing less."""
    return CONVERTED if piece.decoded and name in _FORMS else ""


# Functions that write into their first argument.
FIRST_ARGUMENT_EDITS = frozenset(
    {"random.shuffle", "numpy.random.shuffle", "numpy.put", "numpy.place", "numpy.copyto", "numpy.fill_diagonal"}
)  # fmt: skip
DRAWING = frozenset(f"cv2.{name}" for name in ("rectangle", "line", "circle", "putText", "drawContours", "fillPoly",
                                               "polylines", "ellipse", "fillConvexPoly"))  # fmt: skip


_RANDOM = ("random.", "numpy.random.", "secrets.", "torch.rand", "torch.normal", "torch.bernoulli", "torch.multinomial")


def is_random(path: str) -> bool:
    """Whether a library's function draws a random number."""
    return path.startswith(_RANDOM)


# Functions that draw one number, with at most so many arguments by position.
_DRAWS = {
    "random": 0, "randint": 2, "randrange": 3, "uniform": 2, "gauss": 2, "normalvariate": 2, "rand": 0, "randn": 0,
    "normal": 2, "triangular": 3, "betavariate": 2, "beta": 2, "getrandbits": 1, "randbelow": 1,
}  # fmt: skip


def made_by(path: str, arguments: int, sized: bool = False) -> Piece:
    """What a library's function gives that does not pass its argument's memory on.

    ``arguments`` is the number of those given by position, ``sized`` whether there is ``size=``.
    """
    path = library.canonical(path)
    root, _, rest = path.partition(".")
    name = path.rpartition(".")[2]
    drawn, decoded = is_random(path), path if path in library.DECODERS else ""
    if path in _LOADERS:
        return Piece(_LOADERS[path], decoded=decoded, fresh=True)
    if path in _IMAGES:
        return Piece(ARRAY, solid=True, decoded=decoded, fresh=True)
    if drawn and root != "torch" and not sized and arguments <= _DRAWS.get(name, -1):
        return Piece(SCALAR, drawn=True, fresh=True)
    if path == "numpy.random.choice" and (sized or arguments > 1):
        return Piece(ARRAY, solid=True, drawn=True, fresh=True)
    if path in _FLAT_MAKERS:
        return Piece(ARRAY if root == "numpy" else TENSOR, solid=True, flat=True, drawn=drawn, fresh=True)
    if root == "numpy" and rest in _NUMPY_MAKERS:
        solid = name in _STACKS or arguments > 1 and rest in ("random.randn", "random.rand")
        return Piece(ARRAY, solid=solid, drawn=drawn, decoded=decoded, fresh=True)
    if root == "torch" and not path.startswith(_TORCH_NO_TENSORS) and "()" not in path and "[" not in path:
        if name[:1].islower() and not name.startswith(("is_", "set_", "get_", "manual_seed", "no_grad", "device")):
            return Piece(TENSOR, drawn=drawn, fresh=True)
        if name.endswith("Tensor"):
            return Piece(TENSOR, fresh=True)
    if path == "builtins.range":
        return Piece(LIST, solid=True, fresh=True, element=NUMBER)
    if path in ("builtins.int", "builtins.float", "builtins.len", "builtins.bool", "builtins.round", "builtins.abs"):
        return NUMBER
    if path in ("builtins.dict", "collections.OrderedDict", "collections.defaultdict"):
        return Piece(DICT, solid=True, fresh=True)
    if path in ("builtins.list", "builtins.sorted"):
        return Piece(LIST, solid=True, fresh=True)
    return Piece(drawn=drawn, decoded=decoded, fresh=True)


def is_view(path: str) -> bool:
    """Whether a function gives a view of its first argument."""
    root, _, name = path.partition(".")
    return root == "numpy" and name in _NUMPY_VIEWS or root == "torch" and name in _TORCH_VIEWS


# What torchvision's in-memory sets keep in ``data`` and ``targets``.
_TENSOR_SETS = frozenset(
    {"MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST"}
)  # fmt: skip
_ARRAY_SETS = frozenset(
    {"CIFAR10", "CIFAR100", "SVHN", "STL10"}
)  # fmt: skip


def library_attribute(path: str) -> Piece | None:
    """``MNIST(...).data``: what an object of a library keeps, by the path of its class and the attribute."""
    base, _, name = path.rpartition(".")
    owner = base.removesuffix("()").rpartition(".")[2]
    if base.startswith("torchvision.datasets.") and name in ("data", "targets", "train_data"):
        if owner in _TENSOR_SETS:
            return Piece(TENSOR, solid=name != "targets", fresh=True)
        if owner in _ARRAY_SETS and name != "targets":
            return Piece(ARRAY, solid=True, fresh=True)
    if base.endswith("()") and name == "values" and base.startswith("pandas."):
        return Piece(ARRAY, fresh=True)
    return None


# -- several pieces


def joined(pieces: list[Piece]) -> Piece:
    """One piece for several that a value can be: what they have in common."""
    if not pieces:
        return UNKNOWN_PIECE
    first = pieces[0]
    if all(piece.kind == first.kind for piece in pieces):
        return first._replace(solid=all(piece.solid for piece in pieces), flat=all(piece.flat for piece in pieces))
    return Piece(drawn=any(piece.drawn for piece in pieces))


def computed(pieces: list[Piece], fresh: bool = True) -> Piece:
    """Something new that was computed from others."""
    kind = next((piece.kind for piece in pieces if piece.kind == TENSOR), "")
    kind = kind or next((piece.kind for piece in pieces if piece.kind == ARRAY), "")
    if not kind and pieces and all(piece.kind == SCALAR for piece in pieces):
        kind = SCALAR
    return Piece(
        kind,
        solid=any(piece.solid for piece in pieces if piece.kind in NUMERIC),
        drawn=any(piece.drawn for piece in pieces),
        fresh=fresh,
        sources=frozenset[str]().union(*(piece.sources for piece in pieces)),
    )


def item_of(piece: Piece, number: int | None = None) -> Piece:
    """An element of a value that is iterated or unpacked."""
    if piece.kind in (LIST, TUPLE, DICT, ""):
        found = piece.part(number) if number is not None else None
        item = found if found is not None else piece.element if piece.element is not None else UNKNOWN_PIECE
        if piece.stored is not None:
            return item._replace(stored=piece.stored, whole=False, fresh=False)
        return item._replace(drawn=item.drawn or piece.drawn)
    if piece.flat:
        return Piece(SCALAR, drawn=piece.drawn)
    if piece.kind in NUMERIC or piece.kind in (PLAIN, LOADED):
        return piece._replace(whole=False, solid=False, fresh=False, turned=None)
    return Piece(drawn=piece.drawn)
