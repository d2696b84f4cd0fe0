"""What the documents say is so: their examples run, their tables match the code."""

import functools
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import aolog
import aolog.cli
import bridge.cli
import bridge.errors
import bridge.kafka.embedded
from aolog.docs import generated, pictures
from bridge.config.models import Cluster, Config, Route

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "aolog/docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path: path.read_text(encoding="utf-8") for path in [
    ROOT / "README.md", ROOT / "aolog/FORMAT.md", *sorted(DOCS.rglob("*.md"))
]}  # fmt: skip  # one list
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")


def _blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _words(heading):
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-")


def _anchors(text):
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {_words(heading) for heading in re.findall(r"^#+ (.*)", plain, re.MULTILINE)}


def test_the_readme_is_a_page():
    assert README.count("\n") <= 200
    assert len(README.split()) <= 1500


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_to_files_and_headings_that_exist(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[path]):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        if anchor:
            assert anchor in _anchors(PAGES[linked]), target


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of the site, built without a warning: a page in no table of contents, a link to a
    heading that is missing, and the like."""
    at = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going",
         "-d", at / "doctrees", DOCS, at / "html"],
        cwd=at, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert done.returncode == 0, done.stderr
    return at / "html"


@pytest.fixture(scope="module")
def site(built):
    """The site's HTML by path."""
    return {
        str(path.relative_to(built)): path.read_text(encoding="utf-8")
        for path in built.rglob("*.html")
    }


@pytest.mark.xdist_group("site")
def test_the_site_loads_nothing_from_elsewhere(site):
    for html in site.values():
        loaded = re.findall(r"<(?:script|img|link|source|iframe)\b[^>]*", html)
        assert loaded, "the pattern is blind"
        assert [tag for tag in loaded if re.search(r"(?:src|href)=\"(?:https?:)?//", tag)] == []


@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("module", [
    "aolog", "aolog.aio", "aolog.spark", "aolog.testing",
    "bridge", "bridge.client", "bridge.testing",
])  # fmt: skip  # one list
def test_every_public_name_is_in_the_reference(site, module):
    html = site["reference/python-aolog.html"] + site["reference/python-bridge.html"]
    names = importlib.import_module(module).__all__
    assert {name for name in names if f'id="{module}.{name}"' not in html} == set()


@pytest.mark.xdist_group("site")
def test_every_error_of_the_bridge_and_nothing_else_of_its_module_is_in_the_reference(site):
    found = set(re.findall(r'id="bridge\.errors\.(\w+)"', site["reference/python-bridge.html"]))
    classes = (each for each in vars(bridge.errors).values() if isinstance(each, type))
    assert found == {each.__name__ for each in classes if each.__module__ == "bridge.errors"}


@pytest.mark.xdist_group("site")
def test_methods_commands_keys_and_rooms_are_in_the_reference(site):
    assert 'id="aolog.Writer.append_arrow"' in site["reference/python-aolog.html"]
    for name, root in (("aolog", aolog.cli.main), ("bridge", bridge.cli.main)):
        pages = [html for at, html in site.items() if at.startswith(f"reference/commands-{name}")]
        for command in root.commands:
            assert sum(f'id="{root.name}-{command}"' in page for page in pages) == 1, command
    keys = site["reference/configuration.html"]
    for table in (Config, Cluster, Route):
        assert {key for key in table.model_fields if f'class="pre">{key}<' not in keys} == set()
    assert "deliver/" in site["project/rooms-bridge.html"]


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.browser
@pytest.mark.xdist_group("site")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_no_code_is_cut_off_at_1280_pixels(built):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        cut = {}
        for path in sorted(built.rglob("*.html")):
            page.goto(path.as_uri())
            code = page.locator("article pre")
            wide = code.evaluate_all(
                "all => all.filter(pre => pre.scrollWidth > pre.clientWidth).map(pre => pre.innerText)"
            )
            if wide:
                cut[str(path.relative_to(built))] = wide
        browser.close()
    assert cut == {}


def test_every_guide_has_a_line_in_the_index():
    index = PAGES[DOCS / "index.md"]
    lines = dict(re.findall(r"^- \[[^\]]+\]\(([\w/-]+\.md)\)(.*)$", index, re.MULTILINE))
    guides = [path for path in PAGES if path.parent.name in {"how-to", "tutorials"}]
    assert [path.name for path in guides if not lines[f"{path.parent.name}/{path.name}"]] == []


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_the_command_draws(name):
    drawn = (DOCS / f"images/{name}.svg").read_text(encoding="utf-8")
    assert pictures.PICTURES[name]() == drawn, "python -m aolog.docs.pictures"


def test_a_room_that_the_page_of_rooms_leaves_out_is_an_error():
    with pytest.raises(AssertionError, match="'spark'"):
        generated.rooms("aolog", "errors", "record", "format")


def test_every_code_of_an_error_is_once_in_the_sources_and_once_in_the_table():
    codes = re.findall(r"^\| `(\w+)` \| \d \|", generated.errors(), re.MULTILINE)
    sources = [*ROOT.glob("aolog/**/*.py"), *ROOT.glob("bridge/**/*.py")]
    found = [
        code
        for source in sources
        for code in re.findall(
            r'^    code = "(\w+)"', source.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert sorted(codes) == sorted(found)
    assert len(codes) == len(set(codes)) > 50


def test_ci_runs_the_test_command_and_the_demo_of_the_readme():
    commands = _blocks(README, "sh")
    demo, tests = commands[0].strip(), commands[1].strip()
    assert demo.endswith(".venv/bin/python -m bridge demo")
    assert tests.endswith(
        ".venv/bin/pip install -q -e '.[dev]' && .venv/bin/python -m pytest -n auto --dist loadgroup"
    )
    assert '"$bin/python" -m pytest -n auto --dist loadgroup' in CI
    assert "grep -m 1 '^python3 -m venv .* bridge demo$' README.md" in CI
    assert demo.startswith("python3 -m venv ")
    assert "-e '.[dev]'" in CI


@functools.cache
def _help(program, name):
    root = {"aolog": aolog.cli.main, "aolog-bridge": bridge.cli.main}[program]
    context = click.Context(root, info_name=program, **root.context_settings)
    command = root.get_command(context, name)
    assert command is not None, f"{program} {name}"
    return command.get_help(click.Context(command, parent=context, info_name=name))


def test_commands_and_their_options_that_the_pages_name_exist():
    lines = [
        line
        for text in PAGES.values()
        for block in [*_blocks(text, "sh"), *re.findall(r"`([^`\n]+)`", text)]
        for line in block.splitlines()
    ]
    named = 0
    for line in lines:
        for program, name, rest in re.findall(
            r"(?:^|\| |/bin/)(aolog|aolog-bridge|python -m bridge) ([a-z][\w-]*)([^|#]*)", line
        ):
            shown = _help(program.replace("python -m bridge", "aolog-bridge"), name)
            assert "Example" in shown, f"{line}: help without an example"
            for option in re.findall(r" (--[\w-]+)", rest):
                assert option in shown, f"{line}: no {option}"
            named += 1
    assert named > 150


@pytest.mark.parametrize("root", [aolog.cli.main, bridge.cli.main], ids=lambda root: root.name)
def test_the_list_of_commands_says_what_the_help_of_each_begins_with(root):
    shown = root.get_help(click.Context(root, terminal_width=200, **root.context_settings))
    _, _, listed = shown.partition("\nCommands:\n")
    sentences = dict(re.findall(r"^  (\S+) +(\S.*)\.$", listed.partition("\n\n")[0], re.MULTILINE))
    assert sentences.keys() == set(root.commands)
    for name, sentence in sentences.items():
        assert " ".join((root.commands[name].help or "").split()).startswith(sentence), name


def test_the_version_is_said_once_and_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert aolog.__version__ == project["version"]
    assert f"## {aolog.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tracked():
    """Paths of the files that git tracks."""
    paths = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not paths:
        pytest.skip("not a git checkout")
    return paths


def test_the_top_level_holds_what_it_should(tracked):
    names = {name.split("/")[0] for name in tracked}
    allowed = {"pyproject.toml", "README.md", "aolog", "bridge", "tests", "bench", "fuzz"}
    assert {n for n in names if not n.startswith(".")} <= allowed | {"LICENSE", "CHANGELOG.md"}


def test_no_registry_host_is_named(tracked):
    hosts = ["pypi" + ".org", "repo1." + "maven", "repo.maven" + ".apache", "pythonhosted" + ".org"]
    for path in tracked:
        data = (ROOT / path).read_bytes()
        for host in hosts:
            assert host.encode() not in data, f"{path} names {host}"
