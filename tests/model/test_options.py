"""The values of a loader's options, wherever they are written, and which of them go together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import HEAD, Files, cases, deep, loaders, only, option, project, together, word

from dlcheck.model.loaders import Loader
from dlcheck.model.values import Const
from dlcheck.model.worlds import World


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    with deep():
        yield


LONG_LIST = str(list(range(3000)))
LONG_DICT = str({f"w{number}": number for number in range(3000)})

# What num_workers can be; "?" where the user can choose, or nobody knows.
WORKERS: dict[str, tuple[Files, set[object]]] = {
    "keyword": ("DataLoader(ds, num_workers=4)", {4}),
    "keyword dataset": ("DataLoader(dataset=ds, num_workers=4)", {4}),
    "position": ("DataLoader(ds, 32, True, None, None, 4)", {4}),
    "not given": ("DataLoader(ds)", {0}),
    "positional of fewer": ("DataLoader(ds, 32, True)", {0}),
    "starred arguments": ("DataLoader(*args)", {"?"}),
    "starred arguments, keyword": ("DataLoader(*args, num_workers=4)", {4}),
    "unknown name": ("DataLoader(ds, num_workers=n)", {"?"}),
    "dict literal": ("kwargs = {'num_workers': 4, 'pin_memory': True}\nDataLoader(ds, **kwargs)", {4}),
    "dict without it": ("kwargs = {'pin_memory': True}\nDataLoader(ds, **kwargs)", {0}),
    "the length of a long list": (f"n = len({LONG_LIST})\nDataLoader(ds, num_workers=n)", {3000}),
    "an item of a long list": (f"n = {LONG_LIST}[2]\nDataLoader(ds, num_workers=n)", {2}),
    "the last item of a long list": (f"n = {LONG_LIST}[2999]\nDataLoader(ds, num_workers=n)", {"?"}),
    "beside a long list": (f"kwargs = {{'num_workers': 4, 'words': {LONG_LIST}}}\nDataLoader(ds, **kwargs)", {4}),
    "a long dict": (f"kwargs = {LONG_DICT}\nDataLoader(ds, **kwargs)", {"?"}),
    "dict in place": ("DataLoader(ds, **{'num_workers': 4})", {4}),
    "dict call": ("kwargs = dict(num_workers=4)\nDataLoader(ds, **kwargs)", {4}),
    "dict of a dict": ("a = {'num_workers': 2}\nkwargs = dict(a, num_workers=4)\nDataLoader(ds, **kwargs)", {4}),
    "dict of a dict keeps": (
        "a = {'num_workers': 2}\nkwargs = dict(a, pin_memory=True)\nDataLoader(ds, **kwargs)",
        {2},
    ),
    "dict spread": ("a = {'num_workers': 2}\nkwargs = {**a, 'drop_last': True}\nDataLoader(ds, **kwargs)", {2}),
    "dict spread, overridden": (
        "a = {'num_workers': 2}\nkwargs = {**a, 'num_workers': 4}\nDataLoader(ds, **kwargs)",
        {4},
    ),
    "dict union": ("a = {'num_workers': 2}\nkwargs = a | {'num_workers': 4}\nDataLoader(ds, **kwargs)", {4}),
    "dict copy": ("a = {'num_workers': 2}\nkwargs = a.copy()\nDataLoader(ds, **kwargs)", {2}),
    "dict update": ("kwargs = {}\nkwargs.update({'num_workers': 4})\nDataLoader(ds, **kwargs)", {4}),
    "dict update by keyword": ("kwargs = {}\nkwargs.update(num_workers=4)\nDataLoader(ds, **kwargs)", {4}),
    "dict update overrides": (
        "kwargs = {'num_workers': 1}\nkwargs.update(num_workers=4)\nDataLoader(ds, **kwargs)",
        {4},
    ),
    "dict update by a name": (
        "more = {'num_workers': 4}\nkwargs = {'batch_size': 2}\nkwargs.update(more)\nDataLoader(ds, **kwargs)",
        {4},
    ),
    "dict update by the unknown": ("kwargs = {'num_workers': 4}\nkwargs.update(more)\nDataLoader(ds, **kwargs)", {"?"}),
    "dict item": ("kwargs = {}\nkwargs['num_workers'] = 4\nDataLoader(ds, **kwargs)", {4}),
    "dict item, later": ("kwargs = {}\nDataLoader(ds, **kwargs)\nkwargs['num_workers'] = 4", {0}),
    "dict setdefault": ("kwargs = {}\nkwargs.setdefault('num_workers', 4)\nDataLoader(ds, **kwargs)", {4}),
    "dict setdefault of what is set": (
        "kwargs = {'num_workers': 2}\nkwargs.setdefault('num_workers', 4)\nDataLoader(ds, **kwargs)",
        {2},
    ),
    "dict pop": ("kwargs = {'num_workers': 2}\nkwargs.pop('num_workers')\nDataLoader(ds, **kwargs)", {0}),
    "dict del": ("kwargs = {'num_workers': 2}\ndel kwargs['num_workers']\nDataLoader(ds, **kwargs)", {0}),
    "value popped": (
        "kwargs = {'num_workers': 2}\nn = kwargs.pop('num_workers', 0)\nDataLoader(ds, num_workers=n)",
        {2},
    ),
    "value got": ("cfg = {'num_workers': 2}\nDataLoader(ds, num_workers=cfg['num_workers'])", {2}),
    "value got or else": ("cfg = {'workers': 2}\nDataLoader(ds, num_workers=cfg.get('num_workers', 3))", {3}),
    "nested dicts": ("cfg = {'data': {'workers': 2}}\nDataLoader(ds, num_workers=cfg['data']['workers'])", {2}),
    "conditional dict": (
        "cuda = torch.cuda.is_available()\nkwargs = {'num_workers': 4} if cuda else {}\nDataLoader(ds, **kwargs)",
        {4, 0},
    ),
    "dict set under if": ("kwargs = {}\nif flag:\n    kwargs['num_workers'] = 4\nDataLoader(ds, **kwargs)", {4, 0}),
    "dict updated under if": (
        "kwargs = {'num_workers': 1}\nif flag:\n    kwargs.update({'num_workers': 4})\nDataLoader(ds, **kwargs)",
        {4, 1},
    ),
    "two dicts": ("a = {'num_workers': 1}\nb = {'batch_size': 4}\nDataLoader(ds, **a, **b)", {1}),
    "unknown dict": ("DataLoader(ds, **kwargs)", {"?"}),
    "unknown dict, keyword": ("DataLoader(ds, num_workers=4, **kwargs)", {4}),
    "constant": ("N = 4\nDataLoader(ds, num_workers=N)", {4}),
    "constant seen in a function": ("N = 4\ndef build(ds):\n    return DataLoader(ds, num_workers=N)", {4}),
    "constant of a class": ("class Cfg:\n    workers = 4\nDataLoader(ds, num_workers=Cfg.workers)", {4}),
    "constant of an object": ("class Cfg:\n    workers = 4\ncfg = Cfg()\nDataLoader(ds, num_workers=cfg.workers)", {4}),
    "set by __init__": (
        (
            "class Cfg:\n    def __init__(self, workers=3):\n        self.workers = workers\ncfg = Cfg()\n"
            "DataLoader(ds, num_workers=cfg.workers)"
        ),
        {3},
    ),
    "given to __init__": (
        (
            "class Cfg:\n    def __init__(self, workers=3):\n        self.workers = workers\ncfg = Cfg(workers=5)\n"
            "DataLoader(ds, num_workers=cfg.workers)"
        ),
        {5},
    ),
    "assigned twice": ("n = 1\nn = 4\nDataLoader(ds, num_workers=n)", {4}),
    "branches": ("if flag:\n    n = 1\nelse:\n    n = 4\nDataLoader(ds, num_workers=n)", {1, 4}),
    "branch": ("n = 1\nif flag:\n    n = 4\nDataLoader(ds, num_workers=n)", {1, 4}),
    "platform": ("n = 0 if os.name == 'nt' else 4\nDataLoader(ds, num_workers=n)", {0, 4}),
    "conditional": ("DataLoader(ds, num_workers=2 if flag else 4)", {2, 4}),
    "conditional on what is not there to read": (
        "from missing import DEBUG\nDataLoader(ds, num_workers=0 if DEBUG else 4)",
        {0, 4},
    ),
    "conditional on a constant": ("DEBUG = False\nDataLoader(ds, num_workers=0 if DEBUG else 4)", {4}),
    "min": ("DataLoader(ds, num_workers=min(4, 8))", {4}),
    "max": ("DataLoader(ds, num_workers=max(4, 8))", {8}),
    "arithmetic": ("N = 3\nDataLoader(ds, num_workers=2 * N + 1)", {7}),
    "integer division": ("DataLoader(ds, num_workers=8 // 4)", {2}),
    "int of text": ("DataLoader(ds, num_workers=int('4'))", {4}),
    "tuple": ("batch, workers = 32, 4\nDataLoader(ds, num_workers=workers)", {4}),
    "walrus": ("if (n := 4) > 1:\n    DataLoader(ds, num_workers=n)", {4}),
    "all processors": ("DataLoader(ds, num_workers=os.cpu_count())", {"<os.cpu_count>"}),
    "default": ("def build(ds, workers=2):\n    return DataLoader(ds, num_workers=workers)", {2, "?"}),
    "no caller": ("def build(ds, workers):\n    return DataLoader(ds, num_workers=workers)", {"?"}),
    "caller": ("def build(ds, workers):\n    return DataLoader(ds, num_workers=workers)\nbuild(ds, 3)", {3}),
    "callers": (
        "def build(ds, workers=2):\n    return DataLoader(ds, num_workers=workers)\nbuild(ds, 3)\nbuild(ds, workers=4)",
        {3, 4},
    ),
    "caller of caller": (
        (
            "def build(ds, workers):\n    return DataLoader(ds, num_workers=workers)\n"
            "def outer(n):\n    return build(ds, workers=n)\nouter(5)"
        ),
        {5},
    ),
    "passed on by **kwargs": (
        "def build(ds, **kwargs):\n    return DataLoader(ds, **kwargs)\nbuild(ds, num_workers=3)",
        {3},
    ),
    "kwargs with a default": (
        (
            "def build(ds, **kwargs):\n    kwargs.setdefault('num_workers', 2)\n"
            "    return DataLoader(ds, **kwargs)\nbuild(ds)"
        ),
        {2},
    ),
    "returned": ("def workers():\n    return 4\nDataLoader(ds, num_workers=workers())", {4}),
    "returned of branches": (
        "def workers(debug):\n    if debug:\n        return 0\n    return 4\nDataLoader(ds, num_workers=workers(flag))",
        {0, 4},
    ),
    "dataclass": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    workers: int = 4\ncfg = Cfg()\n"
            "DataLoader(ds, num_workers=cfg.workers)"
        ),
        {4},
    ),
    "dataclass, given": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    workers: int = 4\ncfg = Cfg(workers=2)\n"
            "DataLoader(ds, num_workers=cfg.workers)"
        ),
        {2},
    ),
    "dataclass, by position": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n"
            "    size: int = 1\n    workers: int = 4\ncfg = Cfg(8, 2)\n"
            "DataLoader(ds, num_workers=cfg.workers)"
        ),
        {2},
    ),
    "dataclass field": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass Cfg:\n    workers: int = field(default=4)\n"
            "DataLoader(ds, num_workers=Cfg().workers)"
        ),
        {4},
    ),
    "dataclass parameter": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    workers: int = 4\n"
            "def build(ds, cfg: Cfg):\n    return DataLoader(ds, num_workers=cfg.workers)"
        ),
        {4, "?"},
    ),
    "dataclass parameter, to be filled": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    workers: int\n"
            "def build(ds, cfg: Cfg):\n    return DataLoader(ds, num_workers=cfg.workers)"
        ),
        {"?"},
    ),
    "class parameter": (
        ("class Cfg:\n    workers = 4\ndef build(ds, cfg: Cfg):\n    return DataLoader(ds, num_workers=cfg.workers)"),
        {"?"},
    ),
    "dataclass in a dataclass": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass Data:\n    workers: int = 4\n"
            "@dataclass\nclass Cfg:\n    data: Data = field(default_factory=Data)\n"
            "DataLoader(ds, num_workers=Cfg().data.workers)"
        ),
        {4},
    ),
    "tyro": (
        (
            "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    workers: int = 4\n"
            "args = tyro.cli(Args)\nDataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "lambda": ("make = lambda data: DataLoader(data, num_workers=4)\nmake(ds)", {4}),
    "argparse": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=4)\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "argparse, short first": (
        (
            "p = argparse.ArgumentParser()\n"
            "p.add_argument('-j', '--num-workers', type=int, default=4)\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.num_workers)"
        ),
        {4, "?"},
    ),
    "argparse dest": (
        (
            "p = argparse.ArgumentParser()\n"
            "p.add_argument('-j', dest='workers', type=int, default=4)\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "argparse, text default": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default='4')\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "argparse, text": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', default='4')\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=int(args.workers))"
        ),
        {4, "?"},
    ),
    "argparse, required": (
        (
            "p = argparse.ArgumentParser()\n"
            "p.add_argument('--workers', type=int, required=True)\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.workers)"
        ),
        {"?"},
    ),
    "argparse set_defaults": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int)\np.set_defaults(workers=3)\n"
            "args = p.parse_args()\nDataLoader(ds, num_workers=args.workers)"
        ),
        {3, "?"},
    ),
    "argparse group": (
        (
            "p = argparse.ArgumentParser()\ng = p.add_argument_group('data')\n"
            "g.add_argument('--workers', type=int, default=4)\n"
            "args = p.parse_args()\nDataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "argparse in main": (
        (
            "def main(args):\n    DataLoader(ds, num_workers=args.workers)\n"
            "if __name__ == '__main__':\n    p = argparse.ArgumentParser()\n"
            "    p.add_argument('--workers', type=int, default=4)\n"
            "    main(p.parse_args())"
        ),
        {4, "?"},
    ),
    "argparse in a function": (
        (
            "def parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--workers', type=int, default=4)\n"
            "    return p.parse_args()\ndef main():\n    args = parse()\n"
            "    DataLoader(ds, num_workers=args.workers)\nmain()"
        ),
        {4, "?"},
    ),
    "argparse known": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=4)\n"
            "args, rest = p.parse_known_args()\n"
            "DataLoader(ds, num_workers=args.workers)"
        ),
        {4, "?"},
    ),
    "argparse vars": (
        (
            "p = argparse.ArgumentParser()\n"
            "p.add_argument('--workers', type=int, default=4)\nargs = vars(p.parse_args())\n"
            "DataLoader(ds, num_workers=args['workers'])"
        ),
        {4, "?"},
    ),
    "argparse, arithmetic": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=4)\nargs = p.parse_args()\n"
            "DataLoader(ds, num_workers=args.workers // 2)"
        ),
        {2, "?"},
    ),
    "argparse, on self": (
        (
            "class Trainer:\n    def __init__(self, args):\n        self.args = args\n    def build(self):\n"
            "        return DataLoader(ds, num_workers=self.args.workers)\n"
            "p = argparse.ArgumentParser()\n"
            "p.add_argument('--workers', type=int, default=4)\nTrainer(p.parse_args()).build()"
        ),
        {4, "?"},
    ),
    "click": (
        (
            "import click\n@click.command()\n@click.option('--workers', default=4)\ndef main(workers):\n"
            "    DataLoader(ds, num_workers=workers)"
        ),
        {4, "?"},
    ),
    "click, named": (
        (
            "import click\n@click.command()\n@click.option('-j', '--jobs', 'workers', default=4)\ndef main(workers):\n"
            "    DataLoader(ds, num_workers=workers)"
        ),
        {4, "?"},
    ),
    "click argument": (
        (
            "import click\n@click.command()\n@click.argument('workers', type=int)\ndef main(workers):\n"
            "    DataLoader(ds, num_workers=workers)"
        ),
        {"?"},
    ),
    "typer option": (
        (
            "import typer\ndef main(workers: int = typer.Option(4, help='w')):\n"
            "    DataLoader(ds, num_workers=workers)\n"
            "typer.run(main)"
        ),
        {4, "?"},
    ),
    "typer default": (
        (
            "import typer\napp = typer.Typer()\n@app.command()\n"
            "def main(workers: int = 4):\n    DataLoader(ds, num_workers=workers)"
        ),
        {4, "?"},
    ),
    "typer annotated": (
        (
            "import typer\nfrom typing import Annotated\napp = typer.Typer()\n@app.command()\n"
            "def main(workers: Annotated[int, typer.Option(help='w')] = 4):\n    DataLoader(ds, num_workers=workers)"
        ),
        {4, "?"},
    ),
    "yacs": (
        (
            "from yacs.config import CfgNode as CN\n_C = CN()\n_C.DATA = CN()\n_C.DATA.WORKERS = 4\n"
            "cfg = _C.clone()\nDataLoader(ds, num_workers=cfg.DATA.WORKERS)"
        ),
        {4, "?"},
    ),
    "OmegaConf": (
        (
            "from omegaconf import OmegaConf\ncfg = OmegaConf.create({'data': {'workers': 4}})\n"
            "DataLoader(ds, num_workers=cfg.data.workers)"
        ),
        {4},
    ),
    "SimpleNamespace": (
        "from types import SimpleNamespace\ncfg = SimpleNamespace(workers=4)\nDataLoader(ds, num_workers=cfg.workers)",
        {4},
    ),
    "enumerated choices": ("for n in (0, 2, 4):\n    DataLoader(ds, num_workers=n)", {0, 2, 4}),
    "constant of another module": (
        {
            "train.py": HEAD + "from config import WORKERS\nDataLoader(ds, num_workers=WORKERS)\n",
            "config.py": "WORKERS = 4\n",
        },
        {4},
    ),
    "attribute of another module": (
        {
            "train.py": HEAD + "import config\nDataLoader(ds, num_workers=config.WORKERS)\n",
            "config.py": "WORKERS = 4\n",
        },
        {4},
    ),
    "dict of another module": (
        {
            "train.py": HEAD + "from config import CFG\nDataLoader(ds, num_workers=CFG['workers'])\n",
            "config.py": "CFG = {'workers': 4}\n",
        },
        {4},
    ),
    "parser in another file": (
        {
            "train.py": HEAD + "from options import parse\nargs = parse()\nDataLoader(ds, num_workers=args.workers)\n",
            "options.py": (
                "import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n"
                "    p.add_argument('--workers', type=int, default=4)\n    return p.parse_args()\n"
            ),
        },
        {4, "?"},
    ),
    "parser of parents in another file": (
        {
            "train.py": HEAD
            + "from options import base\np = argparse.ArgumentParser(parents=[base()])\nargs = p.parse_args()\n"
            + "DataLoader(ds, num_workers=args.workers)\n",
            "options.py": (
                "import argparse\ndef base():\n    p = argparse.ArgumentParser(add_help=False)\n"
                "    p.add_argument('--workers', type=int, default=4)\n    return p\n"
            ),
        },
        {4, "?"},
    ),
    "caller in another file": (
        {
            "data.py": HEAD + "def build(ds, workers):\n    return DataLoader(ds, num_workers=workers)\n",
            "train.py": "from data import build\nloader = build(None, workers=6)\n",
        },
        {6},
    ),
    "yacs in another file": (
        {
            "config.py": "from yacs.config import CfgNode as CN\n_C = CN()\n_C.DATA = CN()\n_C.DATA.WORKERS = 4\n",
            "train.py": HEAD
            + "from config import _C\ndef main(cfg):\n    DataLoader(ds, num_workers=cfg.DATA.WORKERS)\nmain(_C)\n",
        },
        {4, "?"},
    ),
}


@pytest.mark.parametrize(("files", "expected"), cases(WORKERS))
def test_workers(files: Files, expected: set[object], tmp_path: Path) -> None:
    assert option(only(project(tmp_path, files)), "num_workers") == expected


FLAGS = {
    "store_true": ("p.add_argument('--pin', action='store_true')", False),
    "store_false": ("p.add_argument('--pin', action='store_false')", True),
    "store_false, dest": ("p.add_argument('--no-pin', dest='pin', action='store_false')", True),
    "BooleanOptionalAction": ("p.add_argument('--pin', action=argparse.BooleanOptionalAction, default=True)", True),
    "default": ("p.add_argument('--pin', type=bool, default=True)", True),
    "store_true, set_defaults": ("p.add_argument('--pin', action='store_true')\np.set_defaults(pin=True)", True),
}


@pytest.mark.parametrize(("line", "expected"), FLAGS.values(), ids=FLAGS)
def test_flag_of_the_command_line(line: str, expected: bool, tmp_path: Path) -> None:
    text = f"p = argparse.ArgumentParser()\n{line}\nargs = p.parse_args()\nDataLoader(ds, pin_memory=args.pin)"
    found = only(project(tmp_path, text)).option("pin_memory")
    defaults = {alt.is_(expected) for alt in found if alt.falsy or alt.truthy}
    assert defaults == {True}
    # The user can turn it: that is unknown, and no constant.
    assert not any(alt.is_(not expected) for alt in found)


def test_a_default_of_the_command_line_can_be_overridden(tmp_path: Path) -> None:
    text = (
        "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=4)\nargs = p.parse_args()\n"
        "DataLoader(ds, num_workers=args.workers, pin_memory=True)"
    )
    loader = only(project(tmp_path, text))
    (workers,) = [alt.value for alt in loader.option("num_workers") if isinstance(alt.value, Const)]
    (pinned,) = [alt.value for alt in loader.option("pin_memory") if isinstance(alt.value, Const)]
    assert workers.free is not None
    assert pinned.free is None
    assert workers.origin is not None
    assert "--workers" in workers.origin.words


def test_is_says_nothing_of_the_unknown(tmp_path: Path) -> None:
    (workers,) = only(project(tmp_path, "DataLoader(ds, num_workers=n)")).option("num_workers")
    assert not workers.is_(0)
    assert not workers.positive
    assert not workers.truthy
    assert not workers.falsy


def test_true_is_not_one(tmp_path: Path) -> None:
    (drop,) = only(project(tmp_path, "DataLoader(ds, drop_last=1)")).option("drop_last")
    assert drop.is_(1)
    assert not drop.is_(True)
    assert drop.truthy


def test_options_that_are_not_given_are_torch_s_own(tmp_path: Path) -> None:
    loader = only(project(tmp_path, "DataLoader(ds)"))
    found = {name: option(loader, name) for name in ("batch_size", "pin_memory", "prefetch_factor", "timeout")}
    assert found == {"batch_size": {1}, "pin_memory": {False}, "prefetch_factor": {None}, "timeout": {0}}
    assert not any(alt.given for alt in loader.option("batch_size"))


POSITIONS = [
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
]


@pytest.mark.parametrize("number", range(1, len(POSITIONS)))
def test_position_is_torch_s_order(number: int, tmp_path: Path) -> None:
    arguments = ", ".join(map(str, range(1, number + 1)))
    loader = only(project(tmp_path, f"DataLoader(ds, {arguments})"))
    assert option(loader, POSITIONS[number]) == {number}


def test_where_an_option_is_written(tmp_path: Path) -> None:
    text = "kwargs = {'num_workers': 4}\nDataLoader(ds, pin_memory=True, **kwargs)"
    of = project(tmp_path, text)
    loader = only(of)
    places = {}
    for name in ("num_workers", "pin_memory"):
        (alt,) = loader.option(name)
        assert alt.module is not None
        start, end = alt.module.facts.span(alt.at)
        places[name] = alt.module.source.text[start:end]
    assert places == {"num_workers": "'num_workers': 4", "pin_memory": "pin_memory=True"}


# -- worlds: options that belong together

PAIRS: dict[str, tuple[str, set[tuple[object, object]]]] = {
    "conditional dict": (
        (
            "cuda = torch.cuda.is_available()\n"
            "kwargs = {'num_workers': 4, 'prefetch_factor': 2} if cuda else {}\nDataLoader(ds, **kwargs)"
        ),
        {(4, 2), (0, None)},
    ),
    "conditional on the number": (
        (
            "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=0)\nn = p.parse_args().n\n"
            "DataLoader(ds, num_workers=n, prefetch_factor=4 if n > 0 else None)"
        ),
        {(0, None), ("?", None), ("?", 4)},
    ),
    "one name": (
        "if flag:\n    n = 4\nelse:\n    n = 0\nDataLoader(ds, num_workers=n, prefetch_factor=2 if n else None)",
        {(4, 2), (0, None)},
    ),
    "one condition twice": (
        "DataLoader(ds, num_workers=4 if flag else 0, prefetch_factor=2 if flag else None)",
        {(4, 2), (0, None)},
    ),
    "one condition, negated": (
        "DataLoader(ds, num_workers=4 if flag else 0, prefetch_factor=None if not flag else 2)",
        {(4, 2), (0, None)},
    ),
    "condition under another name": (
        "ok = flag\nDataLoader(ds, num_workers=4 if flag else 0, prefetch_factor=2 if ok else None)",
        {(4, 2), (0, None)},
    ),
    "one if": (
        "n, p = 0, None\nif flag:\n    n = 4\n    p = 2\nDataLoader(ds, num_workers=n, prefetch_factor=p)",
        {(4, 2), (0, None)},
    ),
    "two ifs of one condition": (
        (
            "n, p = 0, None\nif flag:\n    n = 4\nprint(n)\nif flag:\n"
            "    p = 2\nDataLoader(ds, num_workers=n, prefetch_factor=p)"
        ),
        {(4, 2), (0, None)},
    ),
    "two conditions": (
        "DataLoader(ds, num_workers=4 if a else 0, prefetch_factor=2 if b else None)",
        {(4, 2), (4, None), (0, 2), (0, None)},
    ),
    "parameter": (
        (
            "def build(ds, n):\n    return DataLoader(ds, num_workers=n, prefetch_factor=2 if n > 0 else None)\n"
            "build(ds, 0)\nbuild(ds, 4)"
        ),
        {(4, 2), (0, None)},
    ),
    "callers": (
        (
            "def build(ds, n, p):\n    return DataLoader(ds, num_workers=n, prefetch_factor=p)\n"
            "build(ds, 0, None)\nbuild(ds, 4, 2)"
        ),
        {(4, 2), (0, None)},
    ),
    "a flag of callers": (
        (
            "def build(ds, train):\n"
            "    return DataLoader(ds, num_workers=4 if train else 0, prefetch_factor=2 if train else None)\n"
            "build(ds, True)\nbuild(ds, False)"
        ),
        {(4, 2), (0, None)},
    ),
    "isinstance": (
        (
            "def build(ds):\n    it = isinstance(ds, IterableDataset)\n"
            "    return DataLoader(ds, num_workers=0 if it else 4, "
            "prefetch_factor=None if isinstance(ds, IterableDataset) else 2)\n"
            "build(x)"
        ),
        {(4, 2), (0, None)},
    ),
    "early return": (
        (
            "def build(ds, n):\n    if n == 0:\n        return None\n"
            "    return DataLoader(ds, num_workers=n, prefetch_factor=2)\n"
            "build(ds, 0)\nbuild(ds, 4)"
        ),
        {(4, 2)},
    ),
    "elif": (
        (
            "if a:\n    n, p = 0, None\nelif b:\n    n, p = 2, 3\nelse:\n    n, p = 4, 5\n"
            "DataLoader(ds, num_workers=n, prefetch_factor=p)"
        ),
        {(0, None), (2, 3), (4, 5)},
    ),
    "comparison of a name": (
        "DataLoader(ds, num_workers=0 if mode == 'debug' else 4, prefetch_factor=2 if mode != 'debug' else None)",
        {(4, 2), (0, None)},
    ),
}


@pytest.mark.parametrize(("text", "expected"), cases(PAIRS))
def test_options_of_one_world(text: str, expected: set[tuple[object, object]], tmp_path: Path) -> None:
    loader = only(project(tmp_path, text))
    assert together(loader, "num_workers", "prefetch_factor") == expected


CUDA = {
    "is_available": "torch.cuda.is_available()",
    "device": "device.type == 'cuda'",
    "text of the device": "str(device) == 'cuda'",
    "not the CPU": "device.type != 'cpu'",
}


@pytest.mark.parametrize("condition", cases({name: (text,) for name, text in CUDA.items()}))
def test_pinned_only_with_cuda(condition: str, tmp_path: Path) -> None:
    text = (
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        f"DataLoader(ds, pin_memory={condition}, num_workers=4 if torch.cuda.is_available() else 0)"
    )
    loader = only(project(tmp_path, text))
    found = {
        (wanted, workers)
        for wanted in (True, False)
        for pin in loader.pinning(wanted)
        for workers in together_with(loader, pin.world)
    }
    assert found == {(True, 4), (False, 0)}


def together_with(loader: Loader, world: World) -> set[object]:
    return {word(alt.value) for alt in loader.option("num_workers") if world.merge(alt.world) is not None}


def test_loaders_of_two_callers_stay_apart(tmp_path: Path) -> None:
    text = (
        "def build(ds, n):\n    return DataLoader(ds, num_workers=n)\n"
        "for batch in build(ds, 0):\n    pass\nfor batch in build(ds, 4):\n    pass"
    )
    of = project(tmp_path, text)
    assert len(loaders(of)) == 1
    assert sorted(str(option(loader, "num_workers")) for loader in of.loaders if loader.loops) == ["{0}", "{4}"]
