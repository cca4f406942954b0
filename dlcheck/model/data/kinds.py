"""What kind of thing an expression is: an array, a tensor, a list of numbers, a table.

Read off the forms themselves: what makes a thing, what is done to it, what a list is filled with.
A name counts only where all that it can be is of one kind; "" is a kind that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data.reaching import Binding, changed_by, reaching
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Inner, Scope, dotted, last_name, target_names
from dlcheck.model.values import Const, External, Func, Instance, Made, Point, Thunk

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator

ARRAY = "array"  # numpy.ndarray
ARRAYLIKE = "arraylike"  # an ndarray or a tensor, of one dimension or more
TENSOR = "tensor"
NUMBER = "number"
TEXT = "text"
IMAGE = "image"  # of PIL
FRAME = "frame"  # pandas.DataFrame
COLUMN = "column"  # pandas.Series of a frame
ENCODING = "encoding"  # what a tokenizer gives without return_tensors
TOKENIZER = "tokenizer"
HF = "hf"  # datasets.Dataset
HF_SPLITS = "hf splits"  # datasets.DatasetDict
HF_EITHER = "hf either"  # Dataset or DatasetDict, as it was saved
HF_COLUMN = "hf column"
EMPTY = "list[]"
NONE = "none"

MAX_DEPTH = 14
MAX_WORK = 400

# Functions of numpy that give an array of one dimension or more.
_NUMPY_MAKERS = frozenset(
    {
        "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "zeros", "ones", "empty", "full",
        "zeros_like", "ones_like", "empty_like", "full_like", "arange", "linspace", "logspace", "eye", "identity",
        "stack", "concatenate", "vstack", "hstack", "dstack", "column_stack", "row_stack", "expand_dims", "transpose",
        "swapaxes", "moveaxis", "rollaxis", "pad", "tile", "repeat", "flip", "fliplr", "flipud", "rot90", "load",
        "loadtxt", "genfromtxt", "fromfile", "frombuffer", "fromstring", "memmap", "resize", "atleast_1d",
        "atleast_2d", "atleast_3d", "broadcast_to", "diff", "gradient", "convolve", "outer", "sort", "argsort", "ravel",
        "copy", "append", "insert", "diag", "tril", "triu", "kron", "fft.fft", "fft.rfft", "fft.ifft", "fft.irfft",
    }
)  # fmt: skip

# Functions of numpy that compute item by item: of an array they give an array.
_ITEMWISE = frozenset(
    {
        "abs", "absolute", "sqrt", "exp", "log", "log2", "log10", "floor", "ceil", "round", "around", "rint", "clip",
        "maximum", "minimum", "power", "mod", "sin", "cos", "tan", "sign", "square", "nan_to_num", "roll", "reshape",
        "add", "subtract", "multiply", "divide", "cumsum", "where",
    }
)  # fmt: skip

# Other libraries' functions that give an array.
_ARRAY_MAKERS = frozenset(
    {
        "cv2.imread", "cv2.imdecode", "cv2.cvtColor", "cv2.resize", "cv2.flip", "cv2.warpAffine", "cv2.warpPerspective",
        "cv2.GaussianBlur", "cv2.copyMakeBorder", "cv2.rotate", "cv2.remap", "cv2.normalize", "imageio.imread",
        "imageio.v2.imread", "imageio.v3.imread", "skimage.io.imread", "skimage.transform.resize", "tifffile.imread",
        "matplotlib.image.imread", "matplotlib.pyplot.imread", "scipy.misc.imread", "scipy.ndimage.zoom",
        "scipy.ndimage.rotate", "librosa.feature.melspectrogram", "librosa.feature.mfcc", "librosa.stft",
        "librosa.power_to_db", "librosa.amplitude_to_db", "librosa.feature.chroma_stft", "scipy.signal.resample",
    }
)  # fmt: skip

_ARRAY_METHODS = frozenset({"astype", "copy", "reshape", "transpose", "flatten", "ravel", "repeat", "clip", "round"})
_TENSOR_METHODS = frozenset(
    {
        "to", "float", "long", "int", "half", "double", "bool", "clone", "detach", "contiguous", "view", "reshape",
        "permute", "transpose", "unsqueeze", "squeeze", "flatten", "t", "cpu", "cuda", "type", "expand", "repeat",
        "float_", "requires_grad_", "pin_memory", "byte",
    }
)  # fmt: skip

_FRAME_MAKERS = frozenset(
    f"pandas.{name}"
    for name in (
        "read_csv", "read_table", "read_parquet", "read_excel", "read_feather", "read_hdf", "read_sql",
        "read_sql_query", "read_json", "read_fwf", "read_orc", "DataFrame", "DataFrame.from_dict",
        "DataFrame.from_records", "concat", "merge",
    )
)  # fmt: skip
_FRAME_METHODS = frozenset(
    {
        "reset_index", "set_index", "sort_values", "sort_index", "dropna", "drop", "drop_duplicates", "fillna", "head",
        "tail", "sample", "copy", "merge", "rename", "assign", "query", "astype", "join", "filter", "replace",
        "reindex", "explode", "convert_dtypes", "infer_objects", "round", "apply",
    }
)  # fmt: skip

_HF_MAKERS = frozenset(
    {
        "datasets.Dataset.from_dict", "datasets.Dataset.from_pandas", "datasets.Dataset.from_list",
        "datasets.Dataset.from_csv", "datasets.Dataset.from_json", "datasets.Dataset.from_parquet",
        "datasets.Dataset.from_text", "datasets.Dataset.from_generator", "datasets.Dataset.from_file",
        "datasets.concatenate_datasets", "datasets.interleave_datasets", "datasets.Dataset.load_from_disk",
        "datasets.arrow_dataset.Dataset.from_dict",
    }
)  # fmt: skip
_HF_METHODS = frozenset(
    {
        "map", "filter", "select", "shuffle", "with_format", "with_transform", "rename_column", "rename_columns",
        "remove_columns", "select_columns", "cast", "cast_column", "sort", "shard", "flatten", "add_column", "take",
        "skip", "class_encode_column", "flatten_indices", "add_item", "train_test_split",
    }
)  # fmt: skip

_ANNOTATED = {
    "np.ndarray": ARRAY, "numpy.ndarray": ARRAY, "ndarray": ARRAY, "torch.Tensor": TENSOR, "Tensor": TENSOR,
    "pd.DataFrame": FRAME, "pandas.DataFrame": FRAME, "DataFrame": FRAME, "int": NUMBER, "float": NUMBER, "str": TEXT,
}  # fmt: skip


UNSURE = "list[?]"  # a list, of what is not known


def list_of(kind: str) -> str:
    return f"list[{kind or '?'}]"


def item_of(kind: str) -> str:
    """What an item of a list of this kind is."""
    return kind[5:-1].strip("?") if kind.startswith("list[") and kind != UNSURE else ""


def dict_of(kind: str) -> str:
    return f"dict[{kind}]" if kind else ""


class Kinds:
    """Finds kinds in one project; remembers nothing beyond a question."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self._open: set[tuple[object, int]] = set()
        self._work = 0

    def of(self, expr: forms.Expr, point: Point) -> str:
        """The kind of an expression at a point."""
        self._work = 0
        return self._of(expr, point)

    def _of(self, expr: forms.Expr, point: Point) -> str:
        key = (point.frame, expr.at if expr.at >= 0 else id(expr))
        self._work += 1
        if key in self._open or len(self._open) > MAX_DEPTH * 4 or self._work > MAX_WORK:
            return ""
        self._open.add(key)
        try:
            return self._dispatch(expr, point)
        finally:
            self._open.discard(key)

    def _dispatch(self, expr: forms.Expr, point: Point) -> str:
        if isinstance(expr, forms.Const):
            return _of_constant(expr.value)
        if isinstance(expr, forms.FString):
            return TEXT
        if isinstance(expr, forms.Sequence):
            return self._sequence(expr, point)
        if isinstance(expr, forms.Comp):
            inside = Point(point.frame, point.link, point.module.inners.get(expr.at, point.inner))
            kind = self._of(expr.value, inside)
            return dict_of(kind) if expr.kind == "dict" else list_of(kind)
        if isinstance(expr, forms.Name):
            return self._name(expr.id, point)
        if isinstance(expr, forms.Attr):
            return self._attribute(expr, point)
        if isinstance(expr, forms.Sub):
            return self._subscript(expr, point)
        if isinstance(expr, forms.Binary):
            return _arithmetic(expr.op, self._of(expr.left, point), self._of(expr.right, point))
        if isinstance(expr, forms.Unary):
            return "" if expr.op == "not" else self._of(expr.value, point)
        if isinstance(expr, forms.IfExp):
            return _agreed([self._of(expr.body, point), self._of(expr.orelse, point)])
        if isinstance(expr, forms.Walrus):
            return self._of(expr.value, point)
        if isinstance(expr, forms.Call):
            return self._call(expr, point)
        return ""

    def _sequence(self, expr: forms.Sequence, point: Point) -> str:
        if expr.kind == "set":
            return ""
        kinds = [
            item_of(self._of(item.value, point)) if isinstance(item, forms.Star) else self._of(item, point)
            for item in expr.items[:32]
        ]
        return list_of(_agreed(kinds)) if kinds else EMPTY

    # -- names

    def _name(self, name: str, point: Point) -> str:
        inner = point.inner
        while inner is not None:
            found = self._inner_name(name, inner, point)
            if found is not None:
                return found
            inner = inner.parent
        scope = point.frame.scope
        if scope.kind != "class" and (scope.kind == "module" or name in scope.names):
            return self._local(name, Point(point.frame, point.link))
        return self._outer_name(name, point)

    def _inner_name(self, name: str, inner: Inner, point: Point) -> str | None:
        form = inner.form
        if isinstance(form, forms.Lambda):
            return "" if any(param.name == name for param in form.params) else None
        for clause in form.clauses:
            if name in target_names(clause.target):
                outside = Point(point.frame, point.link, inner.parent if clause is form.clauses[0] else inner)
                return self._element(clause.target, name, clause.iter, outside)
        return None

    def _element(self, target: forms.Expr, name: str, source: forms.Expr, point: Point) -> str:
        """What ``name`` is when ``target`` takes the elements of ``source``."""
        if isinstance(source, forms.Call) and last_name(source.func) in ("tqdm", "sorted", "reversed", "list"):
            args = [arg.value for arg in source.args if arg.name is None]
            return self._element(target, name, args[0], point) if args else ""
        if isinstance(source, forms.Call) and last_name(source.func) == "enumerate" and source.args:
            if isinstance(target, forms.Sequence) and len(target.items) == 2:
                if dotted(target.items[0]) == name:
                    return NUMBER
                return self._element(target.items[1], name, source.args[0].value, point)
            return ""
        if isinstance(source, forms.Call) and last_name(source.func) == "zip":
            if isinstance(target, forms.Sequence) and len(target.items) == len(source.args):
                for item, arg in zip(target.items, source.args, strict=True):
                    if name in target_names(item):
                        return self._element(item, name, arg.value, point)
            return ""
        if dotted(target) != name:
            return ""
        return item_of(self._of(source, point))

    def _local(self, name: str, point: Point) -> str:
        bindings, complete = reaching(name, point.link)
        kinds = [self._bound(name, binding, point) for binding in bindings]
        if not complete:
            kinds.append(self._outer_name(name, point))
        grown = [kind for binding, kind in zip(bindings, kinds, strict=False) if binding.how in ("append", "extend")]
        if any(kind not in ("", UNSURE, EMPTY) for kind in grown):
            # What a list is filled with, the rest of it is, too.
            return _agreed([kind for kind in kinds if kind not in ("", UNSURE)])
        return _agreed([kind for kind in kinds if kind != NONE] or kinds)

    def _bound(self, name: str, binding: Binding, point: Point) -> str:
        if binding.value is None:
            return ""
        there = Point(point.frame, binding.link)
        stmt = binding.link.stmt
        if binding.how == "set":
            return self._of(binding.value, there)
        if binding.how == "append":
            return list_of(self._of(binding.value, there))
        if binding.how == "extend":
            kind = self._of(binding.value, there)
            return kind if kind.startswith("list[") or isinstance(stmt, forms.AugAssign) else ""
        if binding.how == "item of" and isinstance(stmt, forms.For):
            return self._element(stmt.target, name, binding.value, there)
        return ""

    def _outer_name(self, name: str, point: Point) -> str:
        frame, scope = point.frame, point.frame.scope
        if scope.kind == "function" and name not in scope.not_local:
            param = next((param for param in scope.function.params if param.name == name), None)
            if param is not None:
                return self._parameter(param, point)
        outer = scope.parent
        while outer is not None and not (outer.kind in ("module", "function") and name in outer.names):
            outer = outer.parent
        if outer is None or not outer.body:
            return ""
        closure = frame.closure if frame.closure is not None and frame.closure.scope is outer else None
        end = Point(closure or self.ev.any_frame(outer), outer.body[-1])
        bindings, complete = reaching(name, outer.body[-1], after=True)
        kinds = [self._bound(name, binding, end) for binding in bindings]
        if not complete:
            kinds.append(self._outer_name(name, end) if outer.kind == "function" else "")
        return _agreed(kinds)

    def _parameter(self, param: forms.Param, point: Point) -> str:
        declared = _annotated(param.annotation)
        if declared or param.kind in ("*", "**"):
            return declared
        thunks = calling.parameter_thunks(self.ev, param.name, point.frame)
        return _agreed([self._thunk(thunk) for thunk, _ in thunks])

    def _thunk(self, thunk: Thunk) -> str:
        if thunk.expr is not None and thunk.point is not None:
            return self._of(thunk.expr, thunk.point)
        return _agreed([_of_constant(alt.value.value) if isinstance(alt.value, Const) else "" for alt in thunk.alts])

    # -- parts

    def _attribute(self, expr: forms.Attr, point: Point) -> str:
        stored = self._stored(expr, point)
        if stored:
            return stored
        kind = self._of(expr.value, point)
        if expr.name in ("T", "mT"):
            return kind if kind in (ARRAY, TENSOR) else ARRAYLIKE
        if kind in (FRAME, COLUMN):
            return ARRAY if expr.name == "values" else COLUMN if kind == FRAME and not expr.name.startswith("_") else ""
        if kind == ENCODING and expr.name in ("input_ids", "attention_mask", "token_type_ids"):
            return list_of(NUMBER)
        return kind if expr.name in ("data", "real", "imag", "flat") and kind in (ARRAY, TENSOR) else ""

    def _stored(self, expr: forms.Attr, point: Point) -> str:
        """The kind of ``self.name``: of all that the class's methods assign to it."""
        cls = self._class_of(expr.value, point)
        if cls is None:
            return ""
        method = self.ev.project.method(cls, expr.name)
        if method is not None:
            if not method.has_decorator("property", "cached_property"):
                return ""
            own = Instance(cls)
            return self._returned(Func(method, own), None)
        from dlcheck.model.attributes import frame_of_method

        instance = point.frame.self_ if isinstance(point.frame.self_, Instance) else Instance(cls)
        kinds = []
        for store in self.ev.project.stores(cls, expr.name):
            frame = frame_of_method(self.ev, instance, store.link.scope)
            # ``[]`` that is filled: what is appended to it counts, too.
            kinds.append(self._of(store.value, Point(frame, store.link)) if store.value is not None else "")
        kinds = [kind for kind in kinds if kind != NONE]
        if EMPTY in kinds:
            kinds += self._appended(cls, expr.name, instance)
        return _agreed(kinds)

    def _appended(self, cls: Scope, name: str, instance: Instance) -> Iterator[str]:
        from dlcheck.model.attributes import frame_of_method

        for base in self.ev.project.lineage(cls):
            for method in base.functions.values():
                own = method.function.params[0].name if method.function.params else "self"
                for link in links_of(method):
                    binding = changed_by(link, f"{own}.{name}")
                    if binding is not None and binding.how in ("append", "extend"):
                        yield self._bound(name, binding, Point(frame_of_method(self.ev, instance, method), link))

    def _class_of(self, expr: forms.Expr, point: Point) -> Scope | None:
        if not isinstance(expr, forms.Name):
            return None
        frame = point.frame
        if isinstance(frame.self_, Instance):
            params = frame.scope.function.params if frame.scope.kind == "function" else ()
            if params and params[0].name == expr.id and frame.scope.owner is not None:
                return frame.self_.cls
        return None

    def _subscript(self, expr: forms.Sub, point: Point) -> str:
        kind, index = self._of(expr.value, point), expr.index
        slices = isinstance(index, forms.Slice)
        many = isinstance(index, forms.Sequence) and any(isinstance(item, forms.Slice) for item in index.items)
        if kind.startswith("list["):
            return kind if slices else item_of(kind)
        if kind.startswith("dict["):
            return kind[5:-1]
        if _looks_up_numbers(expr.value):
            return NUMBER
        text = isinstance(index, forms.Const) and isinstance(index.value, str)
        if kind in (ARRAY, TENSOR, ARRAYLIKE):
            return kind if slices or many or text else ""  # a text names a member of an .npz file
        if kind == FRAME:
            return COLUMN if text else FRAME if isinstance(index, (forms.Sequence, forms.Compare)) else ""
        if kind == ENCODING and text:
            return list_of(NUMBER)
        if kind == HF_SPLITS:
            return HF
        if kind == HF_EITHER and text and isinstance(index, forms.Const):
            return HF if index.value in _SPLITS else HF_COLUMN if index.value in _COLUMNS else ""
        if kind == HF:
            return HF_COLUMN if text or self._of(index, point) == TEXT else ""
        return ARRAYLIKE if many and not kind else ""

    # -- calls

    def _call(self, call: forms.Call, point: Point) -> str:
        func = call.func
        self.ev.fresh()
        values = list(self.ev.values(func, point))
        if len(values) == 1 and isinstance(values[0], External) and "()" not in values[0].path:
            return self._external(values[0].path, call, point)
        if values and all(isinstance(value, Func) for value in values):
            return _agreed([self._returned(value, call, point) for value in values if isinstance(value, Func)])
        if len(values) == 1 and isinstance(values[0], Made) and _makes_tokenizer(values[0].path):
            return _encoded(call)
        if isinstance(func, forms.Attr):
            return self._method(func, call, point)
        return _encoded(call) if self._of(func, point) == TOKENIZER else ""

    def _returned(self, func: Func, call: forms.Call | None, point: Point | None = None) -> str:
        if func.scope.function.is_generator:
            return ""
        args = calling.arguments(call, point) if call is not None and point is not None else None
        frame = self.ev.frame(func.scope, args, point if args is not None else None, func.self_, func.closure)
        kinds = [
            self._of(link.stmt.value, Point(frame, link))
            for link in func.scope.returns
            if isinstance(link.stmt, forms.Return) and link.stmt.value is not None
        ]
        return _agreed(kinds)

    def _external(self, path: str, call: forms.Call, point: Point) -> str:
        root, _, name = path.partition(".")
        first = call.args[0].value if call.args and not call.args[0].star else None
        if root == "numpy":
            if name in _ITEMWISE and first is not None:
                return ARRAY if self._of(first, point) in (ARRAY, ARRAYLIKE) else ""
            if name in ("random.rand", "random.randn") and first is not None:
                return ARRAY
            if name.startswith("random.") and any(arg.name == "size" for arg in call.args):
                return ARRAY
            return ARRAY if name in _NUMPY_MAKERS else ""
        if path in _ARRAY_MAKERS:
            return ARRAY
        if root == "torch":
            return _of_torch(name)
        if path == "PIL.Image.open":
            return IMAGE
        if path in _FRAME_MAKERS:
            return FRAME
        if root == "builtins":
            return self._builtin(name, first, point)
        if root == "datasets":
            return _of_hf(path, call)
        if _makes_tokenizer(path):
            return TOKENIZER
        return ""

    def _builtin(self, name: str, first: forms.Expr | None, point: Point) -> str:
        if name in ("int", "float", "len", "round", "abs", "ord", "bool", "hash", "pow"):
            return NUMBER
        if name in ("str", "repr", "chr", "input"):
            return TEXT
        if name == "range":
            return list_of(NUMBER)
        if name in ("list", "tuple", "sorted", "reversed"):
            if first is None:
                return EMPTY
            kind = self._of(first, point)
            return kind if kind.startswith("list[") else ""
        return ""

    def _method(self, func: forms.Attr, call: forms.Call, point: Point) -> str:
        name = func.name
        if name == "numpy":
            return ARRAY
        if name == "tolist":
            base = func.value.value if isinstance(func.value, forms.Sub) else func.value
            arrays = (ARRAY, TENSOR, ARRAYLIKE)
            known = self._of(func.value, point) in arrays or self._of(base, point) in arrays
            return list_of(NUMBER if known else "")
        if name == "get" and _looks_up_numbers(func.value):
            return NUMBER
        if name == "item":
            return NUMBER
        if name == "astype" and self._of(func.value, point) not in (FRAME, COLUMN):
            return ARRAYLIKE
        kind = self._of(func.value, point)
        if kind == TEXT:
            return list_of(TEXT) if name in ("split", "splitlines", "rsplit") else TEXT if name in _TEXT_METHODS else ""
        if kind in (ARRAY, ARRAYLIKE):
            return kind if name in _ARRAY_METHODS else ""
        if kind == TENSOR:
            return TENSOR if name in _TENSOR_METHODS else ""
        if kind == FRAME:
            return ARRAY if name == "to_numpy" else FRAME if name in _FRAME_METHODS else ""
        if kind == COLUMN:
            return ARRAY if name in ("to_numpy", "unique") else COLUMN if name in _FRAME_METHODS else ""
        if kind in (HF, HF_SPLITS, HF_EITHER):
            return (HF_SPLITS if name == "train_test_split" else kind) if name in _HF_METHODS else ""
        if kind == IMAGE:
            return IMAGE
        if kind == TOKENIZER:
            return _encoded(call, name)
        if kind.startswith("dict["):
            return kind[5:-1] if name in ("get", "pop", "setdefault") else ""
        if name in ("transpose", "swapaxes") and call.args:
            return ARRAYLIKE
        return ""


_TEXT_METHODS = frozenset({"strip", "lower", "upper", "replace", "format", "join", "rstrip", "lstrip", "title"})


def _of_constant(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, (bool, int, float)):
        return NUMBER
    return TEXT if isinstance(value, str) else ""


def _of_torch(name: str) -> str:
    plain = name in (
        "tensor", "as_tensor", "from_numpy", "zeros", "ones", "rand", "randn", "arange", "stack", "cat", "full",
        "empty", "randint", "linspace", "eye", "zeros_like", "ones_like", "Tensor", "FloatTensor", "LongTensor",
        "IntTensor", "DoubleTensor", "BoolTensor", "ByteTensor", "randperm", "vstack", "hstack", "concat", "flip",
    )  # fmt: skip
    return TENSOR if plain else ""


def _of_hf(path: str, call: forms.Call) -> str:
    given = {arg.name for arg in call.args}
    if path in ("datasets.load_dataset", "datasets.load.load_dataset"):
        if any(arg.name == "streaming" for arg in call.args) or any(arg.star for arg in call.args):
            return ""
        return HF if "split" in given else HF_SPLITS
    if path in ("datasets.load_from_disk", "datasets.load.load_from_disk"):
        return HF_EITHER
    return HF if path in _HF_MAKERS else ""


# What people call the splits of a saved dataset, and its columns.
_SPLITS = frozenset({"train", "test", "validation", "valid", "val", "dev", "eval"})
_COLUMNS = frozenset(
    {"input_ids", "attention_mask", "token_type_ids", "labels", "label", "text", "tokens", "image", "audio"}
)

_NUMBERING = frozenset(
    {"stoi", "word2idx", "word2id", "word2index", "token2id", "token2idx", "char2idx", "char2id", "word_to_idx",
     "word_to_id", "word_to_ix", "char_to_idx", "char_to_id", "char_to_ix", "token_to_id", "token_to_idx", "w2i",
     "vocab", "vocabulary", "class_to_idx", "label2id", "word_index", "tok2id"}
)  # fmt: skip


def _looks_up_numbers(expr: forms.Expr) -> bool:
    """Whether a table is one that numbers words, by its name."""
    return last_name(expr).lower().lstrip("_") in _NUMBERING


def _makes_tokenizer(path: str) -> bool:
    owner, _, name = path.rpartition(".")
    return path.startswith("transformers.") and name == "from_pretrained" and "Tokenizer" in owner


def _encoded(call: forms.Call, method: str = "__call__") -> str:
    """What a tokenizer gives: lists, unless tensors are asked for."""
    if any(arg.star or arg.name == "return_tensors" for arg in call.args):
        return ""
    if method in ("__call__", "encode_plus", "prepare_for_model"):
        return ENCODING
    if method in ("encode", "convert_tokens_to_ids", "build_inputs_with_special_tokens"):
        return list_of(NUMBER)
    return list_of(TEXT) if method == "tokenize" else ""


def _annotated(annotation: forms.Expr | None) -> str:
    if annotation is None:
        return ""
    if isinstance(annotation, forms.Const) and isinstance(annotation.value, str):
        return _ANNOTATED.get(annotation.value, "")
    if isinstance(annotation, forms.Sub) and last_name(annotation.value) in ("list", "List", "Sequence"):
        inner = _ANNOTATED.get(dotted(annotation.index) or "", "")
        return list_of(inner) if inner else ""
    return _ANNOTATED.get(dotted(annotation) or "", "")


def _arithmetic(op: str, left: str, right: str) -> str:
    if ARRAY in (left, right):
        return ARRAY
    if TENSOR in (left, right):
        return TENSOR
    if ARRAYLIKE in (left, right):
        return ARRAYLIKE
    if left.startswith("list[") or right.startswith("list["):
        if op == "*":
            return left if left.startswith("list[") else right
        # [0] * n + ids: what the one side is filled with, the other is, too.
        known = [kind for kind in (left, right) if kind not in ("", EMPTY, UNSURE)]
        return _agreed(known) if op == "+" and known else ""
    if left == right == NUMBER:
        return NUMBER
    return TEXT if op in "+%" and left == TEXT else ""


def _agreed(kinds: Iterable[str]) -> str:
    """The one kind that all are; an empty list may be a list of anything."""
    distinct = set(kinds)
    if len(distinct) > 1:
        lists = {kind for kind in distinct if kind.startswith("list[")}
        if lists == distinct:
            distinct -= {EMPTY}
    if distinct == {ARRAY, ARRAYLIKE}:
        return ARRAYLIKE
    return distinct.pop() if len(distinct) == 1 else ""
