"""The project as others get it: hooks, wheel, sdist, and the commands of the README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = {"click", "libcst", "psutil", "tomli"}

HOOKS = (".pre-commit-hooks.yaml", "pre-commit-hooks.yaml")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would lead tools astray: outer git hooks, outer packages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PRE_COMMIT", "DLCHECK_"))}
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "FORCE_COLOR", "SKIP"):
        kept.pop(name, None)
    return {**kept, **more}


def run(*command: object, cwd: Path, status: int = 0, **more: str) -> str:
    """Run a command, demand its exit status, return what it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def git(*arguments: object, cwd: Path) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false")
    return run("git", *identity, *arguments, cwd=cwd)


def commit_all(folder: Path) -> None:
    git("init", "-q", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "all", cwd=folder)


def bin_folder(prefix: Path) -> Path:
    return prefix / ("Scripts" if os.name == "nt" else "bin")


# -- What can be read off the files ------------------------------------------------------------------------------------


def test_hook_files_are_real_and_equal() -> None:
    dotted, plain = (ROOT / name for name in HOOKS)
    assert not dotted.is_symlink()
    assert not plain.is_symlink()
    assert dotted.read_bytes() == plain.read_bytes()


def test_hook_manifest_is_valid() -> None:
    for name in HOOKS:
        run(sys.executable, "-m", "pre_commit", "validate-manifest", name, cwd=ROOT)


def test_there_are_two_hooks() -> None:
    ids = re.findall(r"^- id: (\S+)$", (ROOT / HOOKS[0]).read_text(encoding="utf-8"), re.MULTILINE)
    assert ids == ["dlcheck", "dlcheck-fix"]


def test_linter_depends_on_four_packages() -> None:
    assert {re.split(r"[^\w-]", each)[0] for each in PROJECT["dependencies"]} == DEPENDENCIES


def commands_of_readme() -> list[str]:
    """The two commands of "On a fresh machine"."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## On a fresh machine", 1)[1].split("\n## ", 1)[0]
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S) for line in block.splitlines()]


def test_ci_runs_the_commands_of_the_readme() -> None:
    ci = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    commands = commands_of_readme()
    assert len(commands) == 2
    assert [command in ci for command in commands] == [True, True]


def test_ci_runs_the_test_extra_with_constraints() -> None:
    _, tests = commands_of_readme()
    assert '-c constraints.txt -e ".[test]"' in tests
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^torch==\d+\.\d+\.\d+$", pins, re.MULTILINE)


def test_version_is_said_once() -> None:
    assert "version" in PROJECT["dynamic"]
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "dlcheck" / "__init__.py").read_text(), re.MULTILINE)
    assert version
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# -- Built and installed -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the project, with what is not committed yet."""
    folder = tmp_path_factory.mktemp("project") / "dlcheck"
    if (ROOT / ".git").exists():
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
        files = [name for name in listed if name and (ROOT / name).is_file()]
    else:
        skip = {".venv", "build", "dist", "__pycache__"}
        files = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file() and not skip & {*path.parts}]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    commit_all(folder)
    return folder


@pytest.fixture(scope="session")
def built(checkout: Path) -> Path:
    """A folder with the sdist, and the wheel made from it."""
    # The tests' own environment has hatchling; an environment for each build would cost a download.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", checkout.parent / "dist", checkout, cwd=checkout)
    return checkout.parent / "dist"


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def package_files(checkout: Path) -> set[str]:
    """Every file of the package: modules, schemas, what the report page is made of, what runs in other interpreters."""
    listed = git("ls-files", "-z", "dlcheck", cwd=checkout).split("\0")
    files = {name for name in listed if name}
    assert files >= {
        "dlcheck/advise/advice.schema.json",
        "dlcheck/advise/env.schema.json",
        "dlcheck/dlcheck.schema.json",
        "dlcheck/measure/measurement.schema.json",
        "dlcheck/measure/assets/LICENSES.txt",
        "dlcheck/measure/assets/d3.min.js",
        "dlcheck/measure/assets/page.css",
        "dlcheck/measure/assets/page.js",
        "dlcheck/measure/assets/plot.min.js",
        "dlcheck/measure/worker/__main__.py",
        "dlcheck/measure/shim/sitecustomize.py",
    }
    return files


@pytest.mark.slow
def test_wheel_holds_package_pages_and_marker(checkout: Path, built: Path) -> None:
    names = names_in(only(built, "*.whl"))
    pages = {f"dlcheck/rules/{page.name}" for page in (checkout / "rules").glob("*.md")}
    assert pages
    assert names >= pages | package_files(checkout) | {"dlcheck/py.typed"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dlcheck"}


@pytest.mark.slow
def test_wheel_from_the_tree_equals_wheel_from_the_sdist(checkout: Path, built: Path) -> None:
    direct = checkout.parent / "direct"
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", direct, checkout, cwd=checkout)
    assert names_in(only(direct, "*.whl")) == names_in(only(built, "*.whl"))


@pytest.mark.slow
def test_sdist_holds_package_tests_examples_and_licence(checkout: Path, built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= package_files(checkout)
    assert names >= {"LICENSE", "README.md", "tests/test_packaging.py", "examples/faulty/train.py", *HOOKS}


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that held nothing but pip before the wheel was installed."""
    prefix = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(prefix, with_pip=True, symlinks=os.name != "nt")
    python = bin_folder(prefix) / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", only(built, "*.whl"), cwd=built)
    return prefix


@pytest.mark.slow
@pytest.mark.network
def test_installed_wheel_finds_its_pages(installed: Path, tmp_path: Path) -> None:
    program = bin_folder(installed) / "dlcheck"
    assert "# blocking-transfer-of-pinned-batch (DLC101)" in run(program, "rule", "DLC101", cwd=tmp_path)
    listed = run(program, "rules", cwd=tmp_path)
    assert set(re.findall(r"DLC\d{3}", listed)) >= {page.name[:6] for page in (ROOT / "rules").glob("DLC*.md")}


@pytest.mark.slow
@pytest.mark.network
def test_installed_wheel_lints(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "faulty", tmp_path / "faulty", ignore=shutil.ignore_patterns("data"))
    program = bin_folder(installed) / "dlcheck"
    output = run(program, "--output-format", "concise", "faulty", cwd=tmp_path, status=1)
    assert re.search(r"^faulty/devices\.py:\d+:\d+:.*DLC101", output, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.network
def test_installed_wheel_makes_a_report_page(installed: Path, tmp_path: Path) -> None:
    # Its environment has neither torch nor anything else than the four packages.
    code = "from dlcheck.measure import page; print(page.render([]), [(page.ASSETS / n).stat() for n in page.SCRIPTS])"
    assert "<h1>" in run(bin_folder(installed) / "python", "-c", code, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.network
def test_installation_is_small_enough_for_hosted_hooks(installed: Path) -> None:
    # The hosted service stops at 250 MB, interpreter and pip included.
    packages = [path for path in installed.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in packages) < 120e6
    assert not [path for path in packages if path.name == "torch"]


@pytest.mark.slow
@pytest.mark.network
def test_pre_commit_runs_the_hook(checkout: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    shutil.copytree(ROOT / "examples" / "faulty", user, ignore=shutil.ignore_patterns("data"))
    revision = git("rev-parse", "HEAD", cwd=checkout).strip()
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {checkout.as_posix()}\n    rev: {revision}\n    hooks:\n      - id: dlcheck\n"
    )
    commit_all(user)
    hooks = (sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never")
    home = str(tmp_path / "home")

    output = run(*hooks, cwd=user, status=1, PRE_COMMIT_HOME=home)
    assert "- hook id: dlcheck\n- exit code: 1\n" in output
    # The copy stands in one file and the pinning in another: one process has seen both.
    assert re.search(r"devices\.py:\d+:\d+", output)
    assert "DLC101" in output

    for file in (ROOT / "examples" / "fixed").glob("*.py"):
        shutil.copy(file, user)
    git("add", "-A", cwd=user)
    assert re.search(r"^dlcheck\.+Passed$", run(*hooks, cwd=user, PRE_COMMIT_HOME=home), re.MULTILINE)
